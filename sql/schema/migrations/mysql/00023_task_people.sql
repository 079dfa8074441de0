-- +goose Up
-- Lists ask which tasks are somebody's.
ALTER TABLE task
  ADD KEY task_group (task_group),
  ADD KEY task_owner (owner);

-- +goose Down
ALTER TABLE task
  DROP KEY task_owner,
  DROP KEY task_group;
