-- +goose Up
-- Nearly every batch is the latest run of its batch_no, so there is no sense in an index that says so: lists read it in the
-- rows of their page. A run that hands over to the next one changed all four of these, and a rerun hands over thousands.
ALTER TABLE task_work
  DROP KEY task_work_finish_state,
  ADD KEY task_work_finish_state (finish_state, schedule_time, id, task_id),
  DROP KEY task_work_period,
  ADD KEY task_work_period (period, schedule_time, id, task_id),
  DROP KEY task_work_schedule,
  ADD KEY task_work_schedule (schedule_time, id, task_id),
  DROP KEY task_work_node,
  ADD KEY task_work_node (node, state, schedule_time, id, task_id);

-- +goose Down
ALTER TABLE task_work
  DROP KEY task_work_finish_state,
  ADD KEY task_work_finish_state (finish_state, schedule_time, id, task_id, latest),
  DROP KEY task_work_period,
  ADD KEY task_work_period (period, schedule_time, id, task_id, latest),
  DROP KEY task_work_schedule,
  ADD KEY task_work_schedule (schedule_time, id, task_id, latest),
  DROP KEY task_work_node,
  ADD KEY task_work_node (node, state, schedule_time, id, task_id, latest);
