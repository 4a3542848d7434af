-- The transactional outbox: an application writes rows inside its own
-- transactions, and the gateways make events of those that were committed.

-- Numbers are insertion order, not commit order: they say in which order the
-- rows that are visible become events, and nothing remembers a number as a
-- position. There is no NOTIFY here, whose commit lock is that of the whole
-- database: a commit waits for no other.
create table gapless.outbox (
  number  bigint generated always as identity primary key,
  topic   text not null default 'default',
  type    text not null default 'message',
  data    json,
  id      text,
  source  text not null default '',
  ce      json,
  created timestamptz not null default clock_timestamp(),
  bytes   bigint not null generated always as (coalesce(octet_length(data::text), 0) + coalesce(octet_length(ce::text), 0)) stored
)
-- A queue is nearly empty or changes all the time: vacuum by count alone.
with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
      autovacuum_vacuum_cost_delay = 0);

-- Once a final backup has sealed the log, a row would be lost with the old
-- place: its writer is told. Looking takes no lock.
create function gapless.refuse_sealed()
returns trigger language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from gapless.instance where sealed_at is not null) then
    raise exception 'the log was sealed by a final backup and takes no more events'
      using errcode = 'object_not_in_prerequisite_state';
  end if;
  return null;
end
$$;
create trigger sealed before insert on gapless.outbox for each statement execute function gapless.refuse_sealed();

-- Rows that can never become an event, and why.
create table gapless.outbox_parked (
  number  bigint primary key,
  topic   text not null,
  type    text not null,
  data    json,
  id      text,
  source  text not null,
  ce      json,
  created timestamptz not null,
  parked  timestamptz not null default clock_timestamp(),
  code    text collate "C" not null,
  reason  text not null
);

-- publish stores one event, to be published when the caller's transaction has
-- committed, and returns its number in the outbox. With an id, a repeat within
-- the dedupe window is published once.
--
-- json keeps the digits of numbers and the order of keys; jsonb does not.
create function gapless.publish(topic text, type text, data json, id text default null, source text default null, ce json default null)
returns bigint language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into gapless.outbox (topic, type, data, id, source, ce)
  values (coalesce(publish.topic, 'default'), coalesce(publish.type, 'message'), publish.data,
          nullif(publish.id, ''), coalesce(publish.source, ''), publish.ce)
  returning number
$$;

-- The same for callers whose data is text (as most drivers send it, and every
-- literal) or jsonb. These run as their caller, who needs the right to execute
-- the first.
create function gapless.publish(topic text, type text, data text, id text default null, source text default null, ce json default null)
returns bigint language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select gapless.publish(topic, type, data::json, id, source, ce) $$;

create function gapless.publish(topic text, type text, data jsonb, id text default null, source text default null, ce json default null)
returns bigint language sql volatile
set search_path = pg_catalog, pg_temp
as $$ select gapless.publish(topic, type, data::json, id, source, ce) $$;

-- requeue_parked gives parked rows another try, all or the one with the given
-- number, in their order, and returns how many.
create function gapless.requeue_parked(number bigint default null)
returns bigint language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
  with back as (
    delete from gapless.outbox_parked p
    where requeue_parked.number is null or p.number = requeue_parked.number
    returning p.*
  ), again as (
    insert into gapless.outbox (topic, type, data, id, source, ce, created)
    select b.topic, b.type, b.data, b.id, b.source, b.ce, b.created from back b order by b.number
    returning 1
  )
  select count(*) from again
$$;

-- One right is enough for an application:
--   grant execute on function gapless.publish(text, text, json, text, text, json) to application;
revoke all on gapless.outbox, gapless.outbox_parked from public;
revoke all on function gapless.publish(text, text, json, text, text, json) from public;
revoke all on function gapless.requeue_parked(bigint) from public;
grant usage on schema gapless to public;
