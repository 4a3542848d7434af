package feedtest

import (
	"testing"

	"gapless/feed"
)

// testSharing opens one place twice.
func (s *durableSuite) testSharing(t *testing.T) {
	if !s.needs(LacksSharing) {
		t.Run("a second store is refused, and the first goes on", func(t *testing.T) {
			first := s.site(t, Config{}).open()
			first.fill(3)
			for range 3 {
				second, err := s.open(t, first.site.place, first.site.cfg)
				if err == nil {
					second.Close()
					t.Fatal("a second store was opened")
				}
				first.wantCode("the second store", err, feed.CodeUnavailable)
			}
			first.fill(1)
			before := first.contents()
			again := first.reopen()
			again.wantSame("reopened", before, again.contents())
		})
		return
	}

	pair := func(t *testing.T) (a, b *durable) {
		t.Helper()
		a = s.site(t, Config{}).open()
		b = a.site.open()
		return a, b
	}

	t.Run("two stores have one order", func(t *testing.T) {
		a, b := pair(t)
		for n := range 5 {
			a.append(a.draft())
			d := a.draft()
			b.wantReceipt(b.append(d, a.draft()), 3*n+2, 3*n+3)
			a.wantReceipt(a.append(d), -(3*n + 2))
		}
		b.wantSame("the other", a.contents(), b.contents())
	})

	t.Run("the other's append ends a wait", func(t *testing.T) {
		a, b := pair(t)
		for range 3 {
			answer := a.waiting(a.head())
			b.append(a.draft())
			if err := <-answer; err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("one id at both at once is one event", func(t *testing.T) {
		a, b := pair(t)
		for n := range 10 {
			d := a.draft()
			receipts := make([]feed.Receipt, 4)
			together(len(receipts), func(i int) {
				var err error
				if receipts[i], err = []*durable{a, b}[i%2].log.Append(a.ctx, []feed.Draft{d}); err != nil {
					t.Errorf("append: %v", err)
				}
			})
			if t.Failed() {
				return
			}
			stored := 0
			for _, r := range receipts {
				if !r.Events[0].Duplicate {
					stored++
				}
				if r.Events[0].Seq != uint64(n+1) {
					t.Errorf("event %d got the receipt %+v", n+1, r.Events[0])
				}
			}
			if stored != 1 {
				t.Fatalf("%d of the receipts say that they stored it", stored)
			}
		}
		a.wantBounds(1, 10)
	})

	t.Run("a restore finalized at one is seen at the other", func(t *testing.T) {
		a, b := pair(t)
		a.fill(5)
		before := b.head()
		b.read(0, feed.Limit{Events: 10})
		answer := b.waiting(before)
		done := a.finalize(feed.FinalizeOptions{Actor: "ann"})
		if err := <-answer; err != nil {
			t.Errorf("wait: %v", err)
		}
		if receipt := b.append(a.draft()); receipt.Epoch != done.NewEpoch || receipt.Events[0].Seq != 6 {
			t.Errorf("the other's append is %+v, want 6 of epoch %s", receipt, done.NewEpoch)
		}
		if now := b.bounds().Epoch; now != done.NewEpoch {
			t.Errorf("the other reads epoch %s, want %s", now, done.NewEpoch)
		}
		a.wantSame("the other", a.contents(), b.contents())
	})

	t.Run("a seal at one holds at the other", func(t *testing.T) {
		a, b := pair(t)
		a.fill(2)
		a.backup(feed.BackupOptions{Actor: "ann", Final: true})
		_, err := b.log.Append(b.ctx, []feed.Draft{a.draft()})
		b.wantCode("append", err, feed.CodeSealed)
		b.finalize(feed.FinalizeOptions{Actor: "ann"})
		a.append(a.draft())
	})
}
