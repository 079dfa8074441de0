package calendar

import (
	"testing"

	"capri"
)

// A golden table has 40,000 rows, and must come out in well under a second.
func BenchmarkMarks40000(b *testing.B) {
	c := in(b, "America/New_York")
	from, to := at(b, c, "2024-01-01"), at(b, c, "2028-07-25")
	for b.Loop() {
		n := 0
		for range c.Marks(capri.Hour, from, to) {
			n++
		}
		if n < 40_000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkMarksOfDays(b *testing.B) {
	c := in(b, "America/New_York")
	from, to := at(b, c, "2000-01-01"), at(b, c, "2027-05-20")
	for b.Loop() {
		for range c.Marks(capri.Day, from, to) {
		}
	}
}

// 100,000 day batches at one mark, three paths each: 300,000 expansions in well under half a second.
func BenchmarkExpand(b *testing.B) {
	c := in(b, "America/New_York")
	tmpl, err := ParseTemplate("hdfs://nn/warehouse/ods/orders/year=${yyyy}/month=${M}/day=${d}/${HH-1d}", PathTemplate)
	if err != nil {
		b.Fatal(err)
	}
	iv := c.Containing(capri.Day, at(b, c, "2026-11-01"))
	b.ReportAllocs()
	for b.Loop() {
		tmpl.Expand(c, iv.Start, iv.Mark)
	}
}

func BenchmarkNew(b *testing.B) {
	c := in(b, "America/New_York")
	for b.Loop() {
		New(c.Zone())
	}
}
