-- The log, and the control state beside it.

-- One row: what the log is. Every append locks it, so that seqs are given in
-- the order of commits. It is updated all the time: a mostly empty page keeps
-- these updates in place.
create table gapless.instance (
	only_row          boolean     not null default true primary key check (only_row),
	epoch             text        not null,
	head              bigint      not null default 0,   -- seq of the last event ever stored
	head_fence        text        not null default '',
	oldest            bigint      not null default 1,   -- head + 1: no event is retained
	trimmed_fence     text        not null default '',  -- of the event at oldest - 1
	total             bigint      not null default 0,   -- sum of the sizes of events 1 to head
	trimmed_total     bigint      not null default 0,   -- sum of the sizes of events 1 to oldest - 1
	last_time         timestamptz not null default '1970-01-01 00:00:00+00', -- of the event at head
	expired           timestamptz not null default '1970-01-01 00:00:00+00', -- dedupe holds nothing older
	dedupe_window     bigint      not null default 0,   -- microseconds: the longest that any gateway asks for
	dedupe_claimed    timestamptz not null default '1970-01-01 00:00:00+00', -- when one last asked for so much
	dedupe_asked      bigint      not null default 0,   -- microseconds: the longest that others asked for since
	system_identifier text        not null,             -- with the next two: what the log runs on
	timeline          bigint      not null,
	database          bigint      not null,             -- the oid
	sealed_at         timestamptz,                      -- by a final backup; null: not sealed
	created           timestamptz not null default clock_timestamp()
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The events, seqs oldest to head without a hole.
create table gapless.events (
	seq    bigint      not null primary key,
	total  bigint      not null,               -- sum of the sizes of events 1 to this one
	time   timestamptz not null,
	size   bigint      not null,               -- by which retention accounts the event
	fence  text        collate "C" not null,
	id     text        collate "C" not null,
	type   text        collate "C" not null,
	topic  text        collate "C" not null,
	source text        collate "C" not null,
	data   text        collate "C" not null,   -- JSON
	ce     text        collate "C"             -- CloudEvents attributes, JSON; null: none
) with (
	-- Rows leave at one end as they come at the other: vacuum often, a little at
	-- a time, so that their pages are used again and the table stops growing.
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
	autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.1,
	autovacuum_vacuum_cost_delay = 1,
	toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 10000,
	toast.autovacuum_vacuum_cost_delay = 1
);
-- The default compression takes three times as long as all else that an append
-- of 8 KiB needs, while the log is locked. lz4 costs nothing that can be
-- measured and halves what is written; where the server lacks it, none.
do $$
begin
	execute 'alter table gapless.events alter column data set compression lz4, alter column ce set compression lz4';
exception when others then
	alter table gapless.events alter column data set storage external, alter column ce set storage external;
end
$$;
create index events_topic on gapless.events (topic, seq);

-- Which publishers' ids were used lately.
create table gapless.dedupe (
	key     uuid        not null primary key,  -- hash of topic, source and id
	content bigint      not null,              -- hash of type, data and ce
	seq     bigint      not null,
	time    timestamptz not null
) with (
	autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000,
	autovacuum_vacuum_cost_delay = 1
);
create index dedupe_time on gapless.dedupe (time);

-- Cursors that the server keeps for its readers.
create table gapless.consumers (
	name       text        collate "C" not null primary key,
	epoch      text        not null,
	seq        bigint      not null,
	fence      text        not null,
	reset_from text        not null default '', -- where a finalized restore found it; '': no reset is outstanding
	created    timestamptz not null,
	updated    timestamptz not null
) with (fillfactor = 50);

create table gapless.webhooks (
	id         text        collate "C" not null primary key,
	url        text        not null,
	topics     text[]      not null,
	secret     text        not null,
	status     text        not null,
	reason     text        not null,
	epoch      text        not null,
	seq        bigint      not null,
	fence      text        not null,
	reset_from text        not null default '',
	created    timestamptz not null,
	updated    timestamptz not null
) with (fillfactor = 50);

-- Who did what to the store.
create table gapless.audit (
	seq    bigint      generated always as identity primary key,
	time   timestamptz not null,
	actor  text        not null,
	action text        not null,
	detail json        not null
);
