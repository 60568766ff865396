"""The store: an append-only journal while episodes run, sealed HDF5 shards after, one reader over both, and markers."""

from stateward.store.group_commit import GroupCommit
from stateward.store.journal import Journal, JournalReader, read_journal
from stateward.store.reader import Duplicate, Records, read_records
from stateward.store.shard import seal
from stateward.store.stage import Stage, changed_inputs, hash_file

__all__ = [
    "Duplicate",
    "GroupCommit",
    "Journal",
    "JournalReader",
    "Records",
    "Stage",
    "changed_inputs",
    "hash_file",
    "read_journal",
    "read_records",
    "seal",
]
