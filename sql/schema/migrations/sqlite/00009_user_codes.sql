-- +goose Up
-- What jobs said of themselves (seed 002 §2.2; check: user_code). A batch id is one run, so it stands for the run.
CREATE TABLE IF NOT EXISTS capri_user_code_log (
  id              INTEGER PRIMARY KEY AUTOINCREMENT,
  batch_id        BIGINT        NOT NULL,
  attempt         INT           NOT NULL,
  user_code       BIGINT        NOT NULL, -- 0 is success
  message         VARCHAR(1000) NOT NULL,
  exexecute_state TINYINT       NOT NULL, -- 1: the attempt had not ended yet; 0: it has, and was judged by this
  create_time     BIGINT        NOT NULL,
  success         TINYINT       NULL      -- 1 where user_code is 0: a run succeeds once
);
CREATE UNIQUE INDEX IF NOT EXISTS capri_user_code_log_success ON capri_user_code_log (batch_id, success);

-- +goose Down
DROP TABLE IF EXISTS capri_user_code_log;
