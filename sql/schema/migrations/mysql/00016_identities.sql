-- +goose Up
-- Who may log in, and as what. A user without a row owns tasks and is told of alerts, and has no access.
CREATE TABLE IF NOT EXISTS login (
  user        VARCHAR(128) NOT NULL PRIMARY KEY,
  role        VARCHAR(32)  NOT NULL,
  password    VARCHAR(255) NOT NULL DEFAULT '', -- argon2id with its parameters and salt; empty: none, nobody can log in
  one_time    TINYINT      NOT NULL DEFAULT 0,  -- an admin set it: it has to be changed before anything else, and soon
  password_at BIGINT       NOT NULL DEFAULT 0,
  created_at  BIGINT       NOT NULL
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- What callers of the API show: keys of apps and workers, tokens and sessions of people. hash is SHA-256 of 256 random bits;
-- what is hashed is shown once and never stored.
CREATE TABLE IF NOT EXISTS credential (
  id           BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
  hash         VARCHAR(64)   NOT NULL,
  kind         VARCHAR(16)   NOT NULL, -- app, worker, token, session
  holder       VARCHAR(128)  NOT NULL, -- name of the app, the node or the user
  name         VARCHAR(128)  NOT NULL DEFAULT '', -- what its user calls a token; the pool of a worker's key
  scopes       VARCHAR(255)  NOT NULL DEFAULT '', -- with commas between them; empty: of a token, all that its user may
  created_at   BIGINT        NOT NULL,
  created_by   VARCHAR(190)  NOT NULL,
  expires_at   BIGINT        NULL,     -- NULL: never
  last_used_at BIGINT        NULL,     -- written once a minute at most
  UNIQUE KEY credential_hash (hash),
  KEY credential_holder (kind, holder),
  KEY credential_expires (expires_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- How often somebody failed to log in of late: by name and address, by name, by address. subject is a hash, since people type
-- passwords where their name belongs.
CREATE TABLE IF NOT EXISTS login_failure (
  subject  VARCHAR(64) NOT NULL PRIMARY KEY,
  failures INT         NOT NULL,
  next_at  BIGINT      NOT NULL, -- no try is looked at before
  last_at  BIGINT      NOT NULL,
  KEY login_failure_last (last_at)
) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

-- The keys that apps have. app.key_hash stays as what older binaries read.
INSERT INTO credential (hash, kind, holder, scopes, created_at, created_by)
SELECT a.key_hash, 'app', a.name, 'all', a.created_at, '' FROM app a WHERE NOT EXISTS (SELECT 1 FROM credential c WHERE c.hash = a.key_hash);

ALTER TABLE app ADD COLUMN owner VARCHAR(128) NOT NULL DEFAULT '', ADD COLUMN department VARCHAR(128) NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE app DROP COLUMN owner, DROP COLUMN department;
DROP TABLE IF EXISTS login_failure;
DROP TABLE IF EXISTS credential;
DROP TABLE IF EXISTS login;
