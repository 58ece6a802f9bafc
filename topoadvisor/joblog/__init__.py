"""What a job's log of NCCL says, judged against the topology."""
