package lawtest_test

import (
	"bytes"
	"fmt"
	"strings"

	"gapless/feed/lawtest"
)

// A test records what a publisher was answered and what a reader got, and lets the checker judge. Here the server
// answered for three events, and the reader got two.
func Example() {
	var file bytes.Buffer
	recorder := lawtest.NewRecorder(&file)
	record := func(rec lawtest.Record) {
		if err := recorder.Record(rec); err != nil {
			fmt.Println(err)
		}
	}

	for seq := uint64(1); seq <= 3; seq++ {
		record(lawtest.Record{
			Kind: lawtest.KindPublish, ID: fmt.Sprintf("order-%d", seq), Topic: "orders", Type: "order.created", Data: fmt.Sprint(seq),
			Outcome: lawtest.OutcomeAcknowledged, Status: 201, Epoch: "01KB7Q3V9W8ZJ4M2T6R5N0XYCD", Seq: seq,
		})
	}

	// In a test this is the body of a response.
	body := strings.NewReader(`event: order.created
data: {"seq":1,"epoch":"01KB7Q3V9W8ZJ4M2T6R5N0XYCD","id":"order-1","type":"order.created","topic":"orders","data":1}
id: 01KB7Q3V9W8ZJ4M2T6R5N0XYCD-1-7K3M9Q2P

event: order.created
data: {"seq":3,"epoch":"01KB7Q3V9W8ZJ4M2T6R5N0XYCD","id":"order-3","type":"order.created","topic":"orders","data":3}
id: 01KB7Q3V9W8ZJ4M2T6R5N0XYCD-3-M2T6R5N0

`)
	record(lawtest.Record{Kind: lawtest.KindSubscribe, Client: "page", Conn: 1})
	if err := lawtest.ParseFrames(body, lawtest.Stream{Client: "page", Conn: 1}, recorder.Record); err != nil {
		fmt.Println(err)
	}
	record(lawtest.Record{Kind: lawtest.KindCut, Client: "page", Conn: 1, By: lawtest.CutByPeer})

	history, err := lawtest.ReadHistory(&file)
	if err != nil {
		fmt.Println(err)
	}
	for _, v := range lawtest.Check(history, lawtest.Options{MustReach: true}) {
		fmt.Println(v)
	}
	// Output:
	// gap-free: client page, connection 1: seq 3 was delivered without seq 2, event "order-2" on orders. (records [1 4 5])
}
