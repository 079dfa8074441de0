-- +goose Up
-- Alerts of one cause, as people are told of them. open is 1 until it is over, then NULL: a cause has one open incident.
CREATE TABLE IF NOT EXISTS incident (
  id         BIGINT       NOT NULL PRIMARY KEY,
  cause      VARCHAR(255) NOT NULL,
  open       TINYINT      NULL,
  level      TINYINT      NOT NULL, -- the highest of its alerts
  kind       VARCHAR(64)  NOT NULL, -- of the first
  task_id    BIGINT       NOT NULL,
  batch_id   BIGINT       NOT NULL, -- of the root, where it is a batch
  title      VARCHAR(255) NOT NULL,
  alerts     INT          NOT NULL,
  opened_at  BIGINT       NOT NULL,
  last_at    BIGINT       NOT NULL, -- when its newest alert was raised
  tellings   INT          NOT NULL, -- how often people were told; a delivery belongs to one
  next_at    BIGINT       NULL,     -- when they are told again, if nobody acknowledges
  step       INT          NOT NULL, -- of the repeats and of the escalation
  acked_at   BIGINT       NULL,
  acked_by   VARCHAR(190) NOT NULL DEFAULT '',
  silenced   VARCHAR(255) NOT NULL DEFAULT '', -- why nobody is told
  closed_at  BIGINT       NULL,
  closed_why VARCHAR(255) NOT NULL DEFAULT '',
  UNIQUE KEY incident_cause (cause, open),
  KEY incident_next (open, next_at),
  KEY incident_last (open, last_at),
  KEY incident_closed (closed_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- One message to one address: the account of who was told of what, by which rule.
CREATE TABLE IF NOT EXISTS alert_delivery (
  id          BIGINT       NOT NULL PRIMARY KEY,
  incident_id BIGINT       NOT NULL,
  telling     INT          NOT NULL,
  stage       VARCHAR(16)  NOT NULL,
  channel     VARCHAR(64)  NOT NULL,
  address     VARCHAR(190) NOT NULL,
  person      VARCHAR(128) NOT NULL,
  why         VARCHAR(255) NOT NULL,
  urgency     TINYINT      NOT NULL, -- 0 severe, 1 important, 2 attention
  state       TINYINT      NOT NULL, -- 0 due, 1 sent, 2 given up, 3 expired
  tries       INT          NOT NULL,
  next_at     BIGINT       NOT NULL,
  created_at  BIGINT       NOT NULL,
  ended_at    BIGINT       NULL,
  error       VARCHAR(2000) NOT NULL DEFAULT '',
  receipt     VARCHAR(190) NOT NULL DEFAULT '', -- what the channel calls it
  UNIQUE KEY alert_delivery_once (incident_id, telling, channel, address, person),
  KEY alert_delivery_due (channel, state, urgency, id),
  KEY alert_delivery_created (created_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- Nobody is told of what a silence covers; it is in the account all the same.
CREATE TABLE IF NOT EXISTS silence (
  id         BIGINT       NOT NULL PRIMARY KEY,
  task       VARCHAR(190) NOT NULL, -- a name, or a pattern with *; empty: every task
  task_group VARCHAR(190) NOT NULL, -- the same; empty: every group
  kind       VARCHAR(64)  NOT NULL, -- of alerts; empty: every kind
  reason     VARCHAR(255) NOT NULL,
  until_at   BIGINT       NOT NULL,
  created_by VARCHAR(190) NOT NULL,
  created_at BIGINT       NOT NULL,
  KEY silence_until (until_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

INSERT INTO id_block (name, next_id) VALUES ('incident', 1), ('delivery', 1), ('silence', 1)
ON DUPLICATE KEY UPDATE next_id = next_id;

-- +goose Down
DELETE FROM id_block WHERE name IN ('incident', 'delivery', 'silence');
DROP TABLE IF EXISTS silence;
DROP TABLE IF EXISTS alert_delivery;
DROP TABLE IF EXISTS incident;
