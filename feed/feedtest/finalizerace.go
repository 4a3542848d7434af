package feedtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"gapless/feed"
)

// testFinalizeUnderLoad finalizes beside appenders, a mover and a reader.
func (s *durableSuite) testFinalizeUnderLoad(t *testing.T) {
	const appenders = 6
	d := s.site(t, Config{Retention: feed.Retention{Events: 1 << 20}}).open()
	d.fill(1)
	d.create("c", d.head())
	var stop atomic.Bool
	var mu sync.Mutex
	epochs := map[uint64]feed.Epoch{1: d.bounds().Epoch}
	var done feed.Finalized
	appended := make(chan struct{}, 1<<16)
	together(appenders+2, func(i int) {
		switch {
		case i < appenders:
			for n := 0; !stop.Load(); n++ {
				draft := feed.Draft{ID: fmt.Sprintf("%d-%d", i, n), Type: "made", Topic: "t", Data: json.RawMessage("1")}
				receipt, err := d.log.Append(d.ctx, []feed.Draft{draft})
				if err != nil {
					t.Errorf("append: %v", err)
					stop.Store(true)
				} else {
					mu.Lock()
					epochs[receipt.Events[0].Seq] = receipt.Epoch
					mu.Unlock()
				}
				select {
				case appended <- struct{}{}:
				default:
				}
			}
		case i == appenders:
			for !stop.Load() {
				c, err := d.store.Consumer(d.ctx, "c")
				page, pageErr := d.log.Read(d.ctx, c.Cursor.Seq, feed.Limit{Events: 3})
				if err = errors.Join(err, pageErr); err == nil && len(page.Events) > 0 {
					err = d.store.MoveConsumer(d.ctx, "c", c.Cursor, feed.Cursor{Epoch: c.Cursor.Epoch, Position: page.Events[len(page.Events)-1].Position()})
				}
				if err != nil && feed.CodeOf(err) != feed.CodeEpochChanged {
					t.Errorf("move: %v", err)
				}
				if err != nil {
					return
				}
			}
		default:
			defer stop.Store(true)
			wait := func() {
				for range 20 * appenders {
					select {
					case <-appended:
					case <-d.ctx.Done():
						return
					}
				}
			}
			wait()
			var err error
			if done, err = d.durable.Finalize(d.ctx, feed.FinalizeOptions{Actor: "ann"}); err != nil {
				t.Errorf("finalize: %v", err)
				return
			}
			wait()
		}
	})
	if t.Failed() {
		return
	}
	d.wantBounds(1, uint64(len(epochs)))
	for seq, epoch := range epochs {
		want := done.NewEpoch
		if seq <= done.HeadSeq {
			want = done.OldEpoch
		}
		if epoch != want {
			t.Fatalf("%d was acknowledged in epoch %s, want %s: the head was %d", seq, epoch, want, done.HeadSeq)
		}
	}
	if c := d.get("c"); c.cursor.Epoch != done.NewEpoch || c.cursor.Seq < done.HeadSeq {
		t.Errorf("the consumer is %v, want it at %d of epoch %s or further", c, done.HeadSeq, done.NewEpoch)
	}
	if text := d.contents(); !reflect.DeepEqual(text, d.reopen().contents()) {
		t.Error("reopened it is another store")
	}
}
