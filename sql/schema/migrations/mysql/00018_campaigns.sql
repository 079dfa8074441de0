-- +goose Up
-- Sets of batches that people want run: previewed, then run as previewed.
CREATE TABLE IF NOT EXISTS campaign (
  id           BIGINT        NOT NULL PRIMARY KEY,
  kind         TINYINT       NOT NULL, -- 1 rerun, 2 cold start
  state        TINYINT       NOT NULL, -- 0 planning, 1 previewed, 2 creating, 3 running, 4 paused, 5 cancelling, 6 done, 7 cancelled, 8 refused
  target       VARCHAR(255)  NOT NULL,
  request      TEXT          NOT NULL, -- as it was asked for, JSON
  who          VARCHAR(190)  NOT NULL,
  reason       VARCHAR(1000) NOT NULL DEFAULT '',
  batch_limit  INT           NOT NULL DEFAULT 0, -- of batches at once; 0 none
  newest_first TINYINT       NOT NULL DEFAULT 0,
  items        INT           NOT NULL,
  minutes      BIGINT        NOT NULL, -- what it costs, from history
  unknown      INT           NOT NULL, -- items of which no cost is known
  kill_running TINYINT       NOT NULL DEFAULT 0, -- cancelled with everything that runs
  refused      TINYINT       NOT NULL DEFAULT 0, -- it is undone since something had changed
  message      TEXT          NOT NULL,
  created_at   BIGINT        NOT NULL,
  started_at   BIGINT        NULL,
  released_at  BIGINT        NULL, -- all runs exist since then
  finished_at  BIGINT        NULL,
  KEY campaign_state (state, id)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What a campaign does with one batch_no.
CREATE TABLE IF NOT EXISTS campaign_item (
  campaign_id  BIGINT       NOT NULL,
  seq          INT          NOT NULL, -- topological
  state        TINYINT      NOT NULL, -- 0 planned, 1 claimed, 2 made and held back, 3 released, 4 ended, 5 undone
  active       TINYINT      NULL,     -- 1 from the claim to the end: a batch_no is in one campaign at a time
  action       TINYINT      NOT NULL, -- what happens: 1 new … see capri.ItemAction
  dropped      TINYINT      NOT NULL DEFAULT 0,
  task_id      BIGINT       NOT NULL,
  task_version INT          NOT NULL,
  batch_no     VARCHAR(32)  NOT NULL,
  mark         BIGINT       NOT NULL,
  data_start   BIGINT       NOT NULL,
  data_end     BIGINT       NOT NULL,
  priority     INT          NOT NULL,
  place        BIGINT       NOT NULL DEFAULT 0, -- in the order of release
  via          INT          NOT NULL, -- the item that brought it in; -1: it was asked for
  why          VARCHAR(500) NOT NULL,
  note         VARCHAR(500) NOT NULL,
  old_batch_id BIGINT       NOT NULL, -- the run that counted when it was previewed; 0: none
  old_run_no   INT          NOT NULL,
  old_state    TINYINT      NOT NULL,
  old_finish   TINYINT      NOT NULL,
  batch_id     BIGINT       NOT NULL DEFAULT 0, -- what runs for it
  finish_state TINYINT      NOT NULL DEFAULT 0,
  minutes      INT          NOT NULL, -- -1 not known
  PRIMARY KEY (campaign_id, seq),
  UNIQUE KEY campaign_item_active (task_id, batch_no, active),
  KEY campaign_item_place (campaign_id, state, place),
  KEY campaign_item_batch (batch_id)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

INSERT INTO id_block (name, next_id) VALUES ('campaign', 1)
ON DUPLICATE KEY UPDATE next_id = next_id;

-- +goose Down
DELETE FROM id_block WHERE name = 'campaign';
DROP TABLE IF EXISTS campaign_item;
DROP TABLE IF EXISTS campaign;
