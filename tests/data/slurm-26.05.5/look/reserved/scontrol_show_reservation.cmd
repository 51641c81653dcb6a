SLURM_TIME_FORMAT=%s scontrol show reservation --all --oneliner
