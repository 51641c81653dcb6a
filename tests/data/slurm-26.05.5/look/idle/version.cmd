SLURM_TIME_FORMAT=%s scontrol --version
