SLURM_TIME_FORMAT=%s scontrol show node --all --oneliner
