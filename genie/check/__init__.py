"""First aid before a job: what is wrong with the network between its hosts, found in seconds, said in a line each."""
