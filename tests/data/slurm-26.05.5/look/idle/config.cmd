SLURM_TIME_FORMAT=%s scontrol show config
