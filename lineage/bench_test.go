package lineage

import (
	"testing"

	"capri"
)

// At 00:01 conditions are made for 100,000 day batches; a simple one has three.
func BenchmarkConditions(b *testing.B) {
	for _, bm := range []struct {
		name string
		spec capri.Spec
	}{
		{"3 simple", capri.Spec{Name: "t", Period: capri.Day,
			Inputs:  []capri.Input{{Path: "hdfs://nn/warehouse/ods/orders/${yyyyMMdd}"}},
			Outputs: []capri.Output{{Path: "hdfs://nn/warehouse/dwd/orders/${yyyyMMdd}"}},
			Parents: []capri.Parent{{Task: "p", TaskID: 2}}}},
		{"24 hours", capri.Spec{Name: "t", Period: capri.Day, Parents: []capri.Parent{{Task: "h", TaskID: 1}}}},
		{"24 paths", capri.Spec{Name: "t", Period: capri.Day,
			Inputs: []capri.Input{{Path: "/ods/${yyyyMMdd}/${HH}", Unit: capri.Hour, From: &capri.Offset{}, To: &capri.Offset{End: true}}}}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			c := in(b, "America/New_York")
			compiled, err := Compile(&capri.Task{Spec: bm.spec})
			if err != nil {
				b.Fatal(err)
			}
			refs := []Ref{1: {ID: 1, Period: capri.Hour}, 2: {ID: 2, Period: capri.Day}}
			iv := interval(b, c, capri.Day, nil, "20261120")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Conditions(c, compiled, iv, func(id capri.TaskID) (Ref, bool) { return refs[id], true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
