-- +goose Up
-- The incident that an alert belongs to; 0: nobody has looked at it yet.
ALTER TABLE alert ADD COLUMN incident_id BIGINT NOT NULL DEFAULT 0;
CREATE INDEX alert_incident ON alert (incident_id, id);

-- +goose Down
DROP INDEX alert_incident;
ALTER TABLE alert DROP COLUMN incident_id;
