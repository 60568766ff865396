"""GRPO with Verl: what Verl is told, the episodes it trains on, and what is checked before, during and after a run.

`run.train` is the entry; it starts a private Ray and one driver process (`driver`) in which Verl's trainer runs. Worlds
and the suite's own episode loop live in Verl's agent-loop workers (`rollout`), beside the rollout engines.

Nothing here imports torch, Ray or Verl at import time but the modules that only ever run inside Verl's own processes:
`driver`, `rollout`, `trainer`, `cpu_platform`, `vllm_cpu` and `verl_hooks`.
"""
