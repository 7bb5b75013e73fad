"""`genie check`, a test of the network between a job's hosts before the job: findings in seconds, in a line each."""
