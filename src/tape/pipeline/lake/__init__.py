"""The lake: the archived part of a journal, in Parquet files that a log of commits tells of.

    PATH/
      data/<after>-<through>-<random>.parquet   entries with after < global_seq <= through, in order
      _tape/<number>.json                       what each commit added and removed (`manifest`)
      _staging/<random>/                        what an archive run is writing; nobody reads it
      _delta_log/                               the same commits for Delta readers (`delta`)

Only the log says which files count. A file is there, whole and on the disk before the commit that
names it; a commit is there as a whole or not at all, and of two with one number only one. So a run
that is killed leaves at most files that nobody reads, and a later one cleans them up.
"""
