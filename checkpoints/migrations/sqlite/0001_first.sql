-- Instants are microseconds since 1970 in UTC. Ids that are UUIDs take 16 bytes. `body` columns are packed and sealed (packing.py).

CREATE TABLE store_info (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE threads (
    thread_no INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL UNIQUE,
    fence INTEGER NOT NULL DEFAULT 0,
    graph_version TEXT NOT NULL DEFAULT '',
    title TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE INDEX threads_by_touch ON threads (updated_at, thread_no);

-- One namespace of one thread; head is the seq of its newest checkpoint by insertion, so a clock set back cannot hide it.
CREATE TABLE lanes (
    lane INTEGER PRIMARY KEY,
    thread_no INTEGER NOT NULL REFERENCES threads (thread_no),
    ns TEXT NOT NULL,
    head INTEGER NOT NULL DEFAULT 0,
    UNIQUE (thread_no, ns)
);

-- Append logs with integer keys: a commit then touches few pages.
CREATE TABLE checkpoints (
    seq INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    checkpoint_id BLOB NOT NULL,
    parent_id BLOB,
    body BLOB NOT NULL
);

CREATE UNIQUE INDEX checkpoints_by_id ON checkpoints (lane, checkpoint_id);

CREATE TABLE writes (
    seq INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    checkpoint_id BLOB NOT NULL,
    body BLOB NOT NULL
);

CREATE INDEX writes_by_checkpoint ON writes (lane, checkpoint_id);

-- Large channel values, once per thread and content.
CREATE TABLE blobs (
    seq INTEGER PRIMARY KEY,
    thread_no INTEGER NOT NULL,
    digest BLOB NOT NULL,
    body BLOB NOT NULL
);

CREATE UNIQUE INDEX blobs_by_digest ON blobs (thread_no, digest);

-- Which LangGraph run ids wrote in which lane, so that deleting a run need not read the whole store.
CREATE TABLE lane_runs (
    run_id TEXT NOT NULL,
    lane INTEGER NOT NULL,
    PRIMARY KEY (run_id, lane)
);

CREATE TABLE owners (
    owner_id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid INTEGER NOT NULL,
    birth TEXT NOT NULL,
    beat INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    beaten_at INTEGER NOT NULL
);

CREATE TABLE runs (
    run_no INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    subject_id TEXT NOT NULL,
    parent_run_id TEXT NOT NULL,
    resumes_run_id TEXT NOT NULL,
    root_run_id TEXT NOT NULL,
    depth INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'awaiting_input', 'cancelled', 'timeout', 'failed')),
    fence INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    deadline INTEGER,
    cause TEXT CHECK (cause IN ('finish', 'failure', 'cancel', 'timeout', 'lost')),
    cause_reason TEXT NOT NULL DEFAULT '',
    cause_at INTEGER,
    receipt TEXT NOT NULL,
    payload TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0,
    CHECK ((status = 'running') = (finished_at IS NULL))
);

CREATE UNIQUE INDEX one_live_run ON runs (thread_id) WHERE status = 'running';

CREATE INDEX runs_by_thread ON runs (thread_id, run_no);

CREATE INDEX runs_by_parent ON runs (parent_run_id) WHERE parent_run_id <> '';

CREATE INDEX live_runs ON runs (owner_id) WHERE status = 'running';

CREATE TABLE events (
    event_no INTEGER PRIMARY KEY,
    run_no INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL,
    payload TEXT NOT NULL
);

CREATE UNIQUE INDEX events_by_run ON events (run_no, seq);

CREATE TABLE notes (
    note_no INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL
);

CREATE INDEX notes_by_run ON notes (run_id, note_no);

CREATE TABLE used_grants (
    request_id TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
);

CREATE INDEX used_grants_by_expiry ON used_grants (expires_at);

CREATE TABLE approvals (
    approval_no INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    interrupt_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    value TEXT NOT NULL,
    digests TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'decided', 'expired', 'withdrawn', 'superseded')),
    decisions TEXT,
    decided_by TEXT NOT NULL DEFAULT '',
    decided_run_id TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    ended_at INTEGER,
    reason TEXT NOT NULL DEFAULT '',
    UNIQUE (thread_id, interrupt_id)
);

CREATE INDEX pending_approvals ON approvals (thread_id) WHERE status = 'pending';

CREATE INDEX approvals_by_decider ON approvals (decided_run_id) WHERE decided_run_id <> '';

-- Standing permissions: scope 'always' for the store, 'session' for one thread.
CREATE TABLE rules (
    rule_id TEXT PRIMARY KEY,
    scope TEXT NOT NULL CHECK (scope IN ('always', 'session')),
    thread_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    match TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
);

CREATE TABLE effects (
    effect_no INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    preview TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('intent', 'started', 'done', 'unknown')),
    scope TEXT,
    result TEXT,
    resolved_by TEXT NOT NULL DEFAULT '',
    updated_at INTEGER NOT NULL,
    UNIQUE (thread_id, call_id)
);

CREATE INDEX open_effects ON effects (thread_id) WHERE status <> 'done';

CREATE TABLE sandbox_sessions (
    session_id TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    workspace TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'idle')),
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL
);

-- Files of the artifact folder and the threads that mention them.
CREATE TABLE artifacts (
    digest TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    size INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (digest, thread_id)
);

CREATE INDEX artifacts_by_thread ON artifacts (thread_id);
