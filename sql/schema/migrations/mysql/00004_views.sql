-- +goose Up
-- For people: UTC times written out, states by name. Programs read the tables.
CREATE OR REPLACE VIEW v_task_work AS SELECT
  w.id, t.name AS task, w.batch_no, w.run_no, w.latest,
  CASE w.period WHEN 2 THEN 'hour' WHEN 3 THEN 'day' WHEN 4 THEN 'month' WHEN 5 THEN 'week' WHEN 6 THEN 'cron' ELSE 'manual' END AS period,
  CASE w.origin WHEN 0 THEN 'mark' WHEN 1 THEN 'catch_up' WHEN 2 THEN 'execute' WHEN 3 THEN 'rerun' WHEN 4 THEN 'cold_start' END AS origin,
  CASE w.state WHEN 0 THEN 'waiting' WHEN 1 THEN 'assigned' WHEN 2 THEN 'running' WHEN 3 THEN 'finished' END AS state,
  CASE w.finish_state WHEN 0 THEN 'none' WHEN 1 THEN 'success' WHEN 2 THEN 'failed' WHEN 3 THEN 'killed' WHEN 4 THEN 'dependency_timeout' WHEN 5 THEN 'output_timeout' WHEN 6 THEN 'skipped' END AS finish_state,
  w.unmet, w.held, w.kill_request, w.node, w.attempt, w.priority, w.failures, w.rejections, w.losses, w.message,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.schedule_time * 1000 MICROSECOND) AS DATETIME(3)) AS schedule_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.data_start * 1000 MICROSECOND) AS DATETIME(3)) AS data_start,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.data_end * 1000 MICROSECOND) AS DATETIME(3)) AS data_end,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.create_time * 1000 MICROSECOND) AS DATETIME(3)) AS create_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.assign_time * 1000 MICROSECOND) AS DATETIME(3)) AS assign_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.start_time * 1000 MICROSECOND) AS DATETIME(3)) AS start_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.finish_time * 1000 MICROSECOND) AS DATETIME(3)) AS finish_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.not_before * 1000 MICROSECOND) AS DATETIME(3)) AS not_before,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.dependency_timeout_at * 1000 MICROSECOND) AS DATETIME(3)) AS dependency_timeout_at,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.output_timeout_at * 1000 MICROSECOND) AS DATETIME(3)) AS output_timeout_at,
  CAST(DATE_ADD('1970-01-01', INTERVAL w.notified_at * 1000 MICROSECOND) AS DATETIME(3)) AS notified_at
FROM task_work w JOIN task t ON t.id = w.task_id;

CREATE OR REPLACE VIEW v_task_data AS SELECT
  d.batch_id, t.name AS task, w.batch_no, CASE d.type WHEN 1 THEN 'input' ELSE 'output' END AS type,
  CASE d.state WHEN 1 THEN 'there' ELSE 'not there' END AS state, d.path, d.flag
FROM task_data d JOIN task_work w ON w.id = d.batch_id JOIN task t ON t.id = w.task_id;

CREATE OR REPLACE VIEW v_tthird_data AS SELECT
  d.batch_id, t.name AS task, w.batch_no, d.code, CASE d.period WHEN 2 THEN 'hour' WHEN 3 THEN 'day' WHEN 4 THEN 'month' WHEN 5 THEN 'week' WHEN 6 THEN 'cron' ELSE 'manual' END AS period, d.batch_no AS third_party_batch_no,
  CASE d.state WHEN 1 THEN 'met' ELSE 'unmet' END AS state
FROM tthird_data d JOIN task_work w ON w.id = d.batch_id JOIN task t ON t.id = w.task_id;

CREATE OR REPLACE VIEW v_tparent_data AS SELECT
  d.batch_id, t.name AS task, w.batch_no, d.grp, p.name AS parent, d.parent_batch_no,
  CASE d.policy WHEN 1 THEN 'any of the group' ELSE 'all of the group' END AS policy,
  CASE d.state WHEN 1 THEN 'met' ELSE 'unmet' END AS state
FROM tparent_data d JOIN task_work w ON w.id = d.batch_id JOIN task t ON t.id = w.task_id JOIN task p ON p.id = d.parent_task_id;

CREATE OR REPLACE VIEW v_capri_schedul_cluster AS SELECT
  host, ip, port, pool, slots, beat, lost, is_stop, memory, cpu_load, memory_load, disk_free, task_num, check_interval,
  CAST(DATE_ADD('1970-01-01', INTERVAL last_check_time * 1000 MICROSECOND) AS DATETIME(3)) AS last_check_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL start_time * 1000 MICROSECOND) AS DATETIME(3)) AS start_time,
  CAST(DATE_ADD('1970-01-01', INTERVAL stop_time * 1000 MICROSECOND) AS DATETIME(3)) AS stop_time
FROM capri_schedul_cluster;

CREATE OR REPLACE VIEW v_alert AS SELECT
  a.id, CASE a.level WHEN 0 THEN '' WHEN 1 THEN 'attention' WHEN 2 THEN 'important' WHEN 3 THEN 'severe' END AS level, a.kind, a.task_id, a.batch_id, a.title, a.body,
  CAST(DATE_ADD('1970-01-01', INTERVAL a.created_at * 1000 MICROSECOND) AS DATETIME(3)) AS created_at
FROM alert a;

-- +goose Down
DROP VIEW IF EXISTS v_alert;
DROP VIEW IF EXISTS v_capri_schedul_cluster;
DROP VIEW IF EXISTS v_tparent_data;
DROP VIEW IF EXISTS v_tthird_data;
DROP VIEW IF EXISTS v_task_data;
DROP VIEW IF EXISTS v_task_work;
