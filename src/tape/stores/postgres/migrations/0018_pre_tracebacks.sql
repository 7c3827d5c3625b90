-- Where a task's handler raised, beside its last error.
ALTER TABLE tape_task_queue ADD COLUMN last_traceback TEXT NOT NULL DEFAULT '';
-- statement
ALTER TABLE tape_task_ended ADD COLUMN last_traceback TEXT NOT NULL DEFAULT '';
