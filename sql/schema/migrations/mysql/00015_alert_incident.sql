-- +goose Up
-- The incident that an alert belongs to; 0: nobody has looked at it yet.
ALTER TABLE alert ADD COLUMN incident_id BIGINT NOT NULL DEFAULT 0, ADD KEY alert_incident (incident_id, id);

-- +goose Down
ALTER TABLE alert DROP KEY alert_incident, DROP COLUMN incident_id;
