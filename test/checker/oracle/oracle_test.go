package oracle

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"

	"capri"
	"capri/calendar"
	"capri/cron"
)

// The oracle is only worth something if it is right where clocks do odd things. It knows nothing of the product; that
// both agree over years of such nights speaks for both.
var zones = []string{"UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Chatham", "America/Havana", "Asia/Beirut", "America/Sao_Paulo",
	"Asia/Pyongyang", "Pacific/Apia", "Antarctica/Troll", "Atlantic/Azores", "Africa/Casablanca"}

func TestTheOracleAndTheCalendar_name_the_same_intervals(t *testing.T) {
	years := map[string]int{"America/Sao_Paulo": 2018, "Asia/Pyongyang": 2015, "Pacific/Apia": 2011}
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			z, err := time.LoadLocation(zone)
			require.NoError(t, err)
			year := years[zone]
			if year == 0 {
				year = 2026
			}
			from, to := time.Date(year, 1, 1, 0, 0, 0, 0, z).UnixMilli(), time.Date(year+1, 2, 1, 0, 0, 0, 0, z).UnixMilli()
			w, err := NewWalk(zone, from, to)
			require.NoError(t, err)
			c := calendar.New(z)
			for _, p := range []Period{Hour, Day, Week, Month} {
				var want []Interval
				for iv := range c.Marks(capri.Period(p), capri.Instant(from+1), capri.Instant(to+1)) {
					want = append(want, Interval{Mark: int64(iv.Mark), Start: int64(iv.Start), End: int64(iv.End), BatchNo: string(iv.BatchNo)})
				}
				require.NotEmpty(t, want)
				require.Equal(t, want, w.Marks(p, from, to), "period %d", p)
			}
		})
	}
}

func TestTheOracleAndTheExpressions_name_the_same_fires(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("CAPRI_TEST_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("CAPRI_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	fixed := []string{"0 30 2 * * ?", "0 0 1,2 ? * SUN", "0 */10 * * * ?", "0 15 0-3 * * ?", "0 0 22-2 * * ?", "5,35 0/20 1 * * ?", "0 0 0 L * ?", "0 0 0 L-3 * ?", "0 0 0 LW * ?",
		"0 0 0 15W * ?", "0 0 0 31W * ?", "0 30 1 ? * 6L", "0 30 1 ? * FRI#3", "0 0 0 ? * L", "0 0 12 1 NOV-FEB ?", "0 0 3 ? * FRI-MON", "0 0 0 29 2 ?", "0 0 0 1 1 ? 2026/2", "0 1 0/6 1,15 * ?"}
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			z, err := time.LoadLocation(zone)
			require.NoError(t, err)
			texts := fixed
			for range 6 {
				texts = append(texts[:len(texts):len(texts)], fmt.Sprintf("%d %d/%d %s * * ?", rng.IntN(60), rng.IntN(60), 1+rng.IntN(59), []string{"*", "1", "0,1,2", "1-3", "0/2"}[rng.IntN(5)]))
			}
			c := calendar.New(z)
			for _, month := range []time.Month{3, 4, 10} {
				from, to := time.Date(2026, month, 1, 0, 0, 0, 0, z).UnixMilli(), time.Date(2026, month+1, 5, 0, 0, 0, 0, z).UnixMilli()
				w, err := NewWalk(zone, from, to)
				require.NoError(t, err)
				for _, text := range texts {
					theirs, err := cron.Parse(text)
					require.NoError(t, err)
					ours, err := ParseCron(text)
					require.NoError(t, err)
					var want []Interval
					for _, iv := range c.CronFires(theirs, capri.Instant(from+1), capri.Instant(to+1), 1_000_000) {
						want = append(want, Interval{Mark: int64(iv.Mark), Start: int64(iv.Start), End: int64(iv.End), BatchNo: string(iv.BatchNo)})
					}
					require.Equal(t, want, w.Fires(ours, from, to), text)
				}
			}
		})
	}
}

func TestParseCron_says_what_it_cannot_read(t *testing.T) {
	for _, text := range []string{"", "* * * * *", "0 0 0 ? * ? 2026 1", "0 0 x * * ?", "0 0 25 * * ?", "0 0/0 * * * ?", "0 0 0 1 * MON"} {
		_, err := ParseCron(text)
		require.Error(t, err, text)
	}
}
