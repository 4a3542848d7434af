package server

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"

	"gapless/feed"
)

// Bounds of a page of the audit trail.
const (
	defaultAuditEntries = 100
	maxAuditEntries     = 1000
)

// audit is GET /api/v1/audit: what operators did to the store, newest first.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	if s.cfg.State == nil {
		s.fail(w, r, problemf(feed.CodeNotFound, "this store keeps no audit trail"))
		return
	}
	q := parseQuery(r.URL.RawQuery)
	limit := q.number("limit", defaultAuditEntries, 1, maxAuditEntries)
	before := q.seq("before")
	if err := q.mistake(); err != nil {
		s.failOperator(w, r, err)
		return
	}
	entries, err := s.cfg.State.Audit(r.Context(), before, limit)
	if err != nil {
		s.failOperator(w, r, err)
		return
	}
	if entries == nil {
		entries = []feed.AuditEntry{}
	}
	s.respondJSON(w, http.StatusOK, map[string][]feed.AuditEntry{"entries": entries})
}

// durable returns the store where it outlives the process.
func (s *Server) durable() (feed.Durable, error) {
	if s.cfg.Durable == nil {
		return nil, problemf(feed.CodeNotFound, "the store %q ends with its process: there is nothing to restore and nothing to back up", s.cfg.Store)
	}
	return s.cfg.Durable, nil
}

// restoreStatus is GET /api/v1/admin/restore: what the store's guard sees.
func (s *Server) restoreStatus(w http.ResponseWriter, r *http.Request) {
	durable, err := s.durable()
	if err != nil {
		s.failOperator(w, r, err)
		return
	}
	status, err := durable.RestoreStatus(r.Context())
	if err != nil {
		s.failOperator(w, r, err)
		return
	}
	if status.Skips == nil {
		status.Skips = []feed.Skip{}
	}
	s.respondJSON(w, http.StatusOK, status)
}

// finalizeRequest is the body of a finalize.
type finalizeRequest struct {
	dryRun     bool
	actor      string
	epoch      feed.Epoch // the one that the operator saw; empty: not told
	relocation *feed.Manifest
}

// finalizeAnswer has one of its members.
type finalizeAnswer struct {
	Finalized *feed.Finalized `json:"finalized,omitempty"`
	Relocated *feed.Relocated `json:"relocated,omitempty"`
}

// finalize is POST /api/v1/admin/restore/finalize: the operator says what
// happened to the store. With a manifest: it was moved without a loss.
func (s *Server) finalize(w http.ResponseWriter, r *http.Request) {
	durable, err := s.durable()
	if err != nil {
		s.reject(w, r, err)
		return
	}
	req, err := s.readFinalize(w, r)
	if err != nil {
		s.reject(w, r, err)
		return
	}
	var answer finalizeAnswer
	if req.relocation != nil {
		relocated, err := durable.Relocate(r.Context(), *req.relocation, req.actor)
		s.watch.forget() // also where it failed: nobody knows how far it came
		if err != nil {
			s.failOperator(w, r, err)
			return
		}
		answer.Relocated = &relocated
		s.log.Warn().Str("actor", req.actor).Str("epoch", string(relocated.Epoch)).Msg("the store has a new place: the relocation was accepted")
	} else {
		finalized, err := durable.Finalize(r.Context(), feed.FinalizeOptions{Actor: req.actor, DryRun: req.dryRun, Epoch: req.epoch})
		s.watch.forget()
		if err != nil {
			s.failOperator(w, r, err)
			return
		}
		if finalized.Skips == nil {
			finalized.Skips = []feed.Skip{}
		}
		answer.Finalized = &finalized
		if !req.dryRun {
			s.log.Warn().Str("actor", req.actor).Str("old_epoch", string(finalized.OldEpoch)).Str("new_epoch", string(finalized.NewEpoch)).
				Int("skips", len(finalized.Skips)).Msg("the restore was finalized: a new epoch has begun")
		}
	}
	s.respondJSON(w, http.StatusOK, answer)
}

func (s *Server) readFinalize(w http.ResponseWriter, r *http.Request) (finalizeRequest, error) {
	req := finalizeRequest{actor: actorOf(r)}
	err := s.readMembers(w, r, func(name string, value []byte) (err error) {
		switch name {
		case "dry_run":
			req.dryRun, err = boolOf(name, value)
		case "actor":
			err = setActor(&req.actor, value)
		case "epoch":
			req.epoch, err = epochOf(name, value)
		case "relocation":
			req.relocation, err = manifestOf(name, value)
		default:
			err = problemf(feed.CodeInvalid, "%q is not a member; they are dry_run, actor, epoch and relocation", clip(name))
		}
		return err
	})
	switch {
	case err != nil || req.relocation == nil:
	case req.dryRun:
		err = problemf(feed.CodeInvalid, "dry_run: a relocation has none; it changes nothing unless the manifest agrees with the store")
	case req.epoch != "":
		err = problemf(feed.CodeInvalid, "epoch: a relocation has the manifest's")
	}
	return req, err
}

// makeBackup is POST /api/v1/admin/backup: it answers when the copy is whole.
// A client that goes away, and a stop of the server, end it.
func (s *Server) makeBackup(w http.ResponseWriter, r *http.Request) {
	durable, err := s.durable()
	if err != nil {
		s.reject(w, r, err)
		return
	}
	directory := ""
	opts := feed.BackupOptions{Actor: actorOf(r)}
	err = s.readMembers(w, r, func(name string, value []byte) (err error) {
		switch name {
		case "directory":
			directory, err = textOf(name, value)
		case "final":
			opts.Final, err = boolOf(name, value)
		case "actor":
			err = setActor(&opts.Actor, value)
		default:
			err = problemf(feed.CodeInvalid, "%q is not a member; they are directory, final and actor", clip(name))
		}
		return err
	})
	if err == nil && (!filepath.IsAbs(directory) || strings.ContainsRune(directory, 0)) {
		err = problemf(feed.CodeInvalid, "directory: want an absolute path on the server's machine")
	}
	if err != nil {
		s.reject(w, r, err)
		return
	}
	if !s.backup.TryLock() {
		s.fail(w, r, problemf(feed.CodeConflict, "a backup is under way already; wait until it is done"))
		return
	}
	defer s.backup.Unlock()
	ctx, end := s.untilStop(r.Context())
	defer end()
	s.log.Info().Str("actor", opts.Actor).Str("directory", directory).Bool("final", opts.Final).Msg("a backup begins")
	manifest, err := durable.Backup(ctx, filepath.Clean(directory), opts)
	if opts.Final {
		s.warnOfSeal(ctx, opts.Actor)
	}
	if err != nil {
		s.log.Warn().Err(err).Str("directory", directory).Msg("a backup failed")
		if errors.Is(context.Cause(ctx), errStopping) {
			err = stopped(err)
		}
		s.failOperator(w, r, refusedDirectory(filepath.Clean(directory), err))
		return
	}
	s.log.Info().Str("directory", directory).Uint64("head_seq", manifest.HeadSeq).Bool("final", manifest.Final).Msg("a backup is done")
	s.respondJSON(w, http.StatusOK, manifest)
}

// refusedDirectory turns the failure of a backup into what the client can
// mend, where the server may not or cannot write to the directory.
func refusedDirectory(directory string, err error) error {
	code := feed.CodeOf(err)
	var path *fs.PathError
	if code == feed.CodeInvalid || !errors.As(err, &path) ||
		!within(path.Path, directory) && !within(directory, path.Path) {
		return err
	}
	for _, mendable := range []error{fs.ErrPermission, fs.ErrNotExist, syscall.EROFS, syscall.ENOTDIR, syscall.ENAMETOOLONG} {
		if errors.Is(path, mendable) {
			return problemf(feed.CodeInvalid, "%s: %v", cmp.Or(messages(err, code), "the backup cannot be written"), path)
		}
	}
	return err
}

// within reports whether a path is the directory or something beneath it. It
// compares whole elements of paths: /variable is not within /var.
func within(path, directory string) bool {
	if !filepath.IsAbs(path) || !filepath.IsAbs(directory) {
		return false
	}
	rel, err := filepath.Rel(directory, path)
	return err == nil && filepath.IsLocal(rel)
}

// warnOfSeal tells the log that a final backup, whatever came of it, has
// sealed the store.
func (s *Server) warnOfSeal(ctx context.Context, actor string) {
	switch sealed, known := s.watch.sealed(context.WithoutCancel(ctx)); {
	case !known:
		s.log.Warn().Str("actor", actor).Msg("a final backup has ended, and the store does not say whether it is sealed")
	case sealed:
		s.log.Warn().Str("actor", actor).Msg("the store is sealed by a final backup: nothing can be published until it is relocated or finalized")
	}
}

// errStopping ends what a stop does not wait for.
var errStopping = errors.New("the server stops")

// stopped says what became of a backup that a stop has ended: what the store
// says of it, such as that it stays sealed, and why.
func stopped(err error) error {
	p := *operatorProblem(err)
	switch p.Code {
	case feed.CodeUnavailable, feed.CodeInternal, feed.CodeNotReady:
		p = *problemf(feed.CodeNotReady, "%s", p.Detail)
	}
	p.Detail += "; the server stops"
	return &p
}

// untilStop returns a context that ends when the server begins to drain, with
// errStopping as its cause. End releases it.
func (s *Server) untilStop(ctx context.Context) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.stopped:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
