"""OpenPBS 20 and newer and PBS Pro, through the dsv format of pbsnodes and qstat."""
