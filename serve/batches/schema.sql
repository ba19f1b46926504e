-- The index of --files-dir. A sequence is the order in which files, or batches, were made.

PRAGMA user_version = 1;

CREATE TABLE file (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, domain INTEGER NOT NULL,
  bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL);
CREATE INDEX file_domain ON file (domain);

CREATE TABLE batch (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, domain INTEGER NOT NULL,
  endpoint TEXT NOT NULL, errors TEXT, input_file_id TEXT NOT NULL, completion_window TEXT NOT NULL, status TEXT NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, output_file_id TEXT, error_file_id TEXT,
  in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER, expired_at INTEGER,
  cancelling_at INTEGER, cancelled_at INTEGER, metadata TEXT,
  total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX batch_domain ON batch (domain);
CREATE INDEX batch_open ON batch (domain, sequence) WHERE status NOT IN ('completed', 'failed', 'expired', 'cancelled');

-- The requests of batches that have not ended: where the line of each begins in the input, in bytes, and its size. The record is
-- null until the request is done, and counts for the batch from then on.
CREATE TABLE request (
  batch INTEGER NOT NULL, number INTEGER NOT NULL, place INTEGER NOT NULL, size INTEGER NOT NULL, custom_id TEXT,
  failed INTEGER, record BLOB, PRIMARY KEY (batch, number), UNIQUE (batch, custom_id));
CREATE TRIGGER request_done AFTER UPDATE OF record ON request BEGIN
  UPDATE batch SET completed = completed + NOT new.failed, failed = failed + new.failed WHERE sequence = new.batch;
END;

-- The objects that clients get, with their members in OpenAI's order.
CREATE VIEW file_object AS SELECT sequence, id, domain, purpose, json_object(
  'id', id, 'object', 'file', 'bytes', bytes, 'created_at', created_at, 'filename', filename, 'purpose', purpose,
  'status', 'processed', 'status_details', NULL) AS object FROM file;
CREATE VIEW batch_object AS SELECT sequence, id, domain, NULL AS purpose, json_object(
  'id', id, 'object', 'batch', 'endpoint', endpoint, 'errors', json(errors), 'input_file_id', input_file_id,
  'completion_window', completion_window, 'status', status, 'created_at', created_at, 'expires_at', expires_at,
  'output_file_id', output_file_id, 'error_file_id', error_file_id, 'in_progress_at', in_progress_at,
  'finalizing_at', finalizing_at, 'completed_at', completed_at, 'failed_at', failed_at, 'expired_at', expired_at,
  'cancelling_at', cancelling_at, 'cancelled_at', cancelled_at,
  'request_counts', json_object('total', total, 'completed', completed, 'failed', failed), 'metadata', json(metadata)
  ) AS object FROM batch;
