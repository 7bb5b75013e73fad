"""What devices and interfaces have counted while a run played, and what of it should not have grown."""
