"""Slurm 22.05 and newer, through the text that scontrol and squeue print."""
