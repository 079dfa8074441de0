-- +goose Up
-- Nearly every batch is the latest run of its batch_no, so there is no sense in an index that says so: lists read it in the
-- rows of their page. A run that hands over to the next one changed all four of these, and a rerun hands over thousands.
DROP INDEX IF EXISTS task_work_finish_state;
CREATE INDEX task_work_finish_state ON task_work (finish_state, schedule_time, id, task_id);
DROP INDEX IF EXISTS task_work_period;
CREATE INDEX task_work_period ON task_work (period, schedule_time, id, task_id);
DROP INDEX IF EXISTS task_work_schedule;
CREATE INDEX task_work_schedule ON task_work (schedule_time, id, task_id);
DROP INDEX IF EXISTS task_work_node;
CREATE INDEX task_work_node ON task_work (node, state, schedule_time, id, task_id);

-- +goose Down
DROP INDEX IF EXISTS task_work_finish_state;
CREATE INDEX task_work_finish_state ON task_work (finish_state, schedule_time, id, task_id, latest);
DROP INDEX IF EXISTS task_work_period;
CREATE INDEX task_work_period ON task_work (period, schedule_time, id, task_id, latest);
DROP INDEX IF EXISTS task_work_schedule;
CREATE INDEX task_work_schedule ON task_work (schedule_time, id, task_id, latest);
DROP INDEX IF EXISTS task_work_node;
CREATE INDEX task_work_node ON task_work (node, state, schedule_time, id, task_id, latest);
