package job

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"capri"
	"capri/calendar"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestThe_environment_is_built_from_nothing(t *testing.T) {
	m := NewMaker(MakerOptions{Calendar: calendar.New(zone(t, "Asia/Shanghai")), Path: "/usr/bin:/bin", Clients: Clients{Path: "/usr/bin:/bin"}, PassEnv: []string{"LANG=C.UTF-8", "TZ=UTC", "broken"}})
	task := &capri.Task{ID: 7, Version: 2, Spec: capri.Spec{Name: "dwd", Job: capri.Job{
		Type: "python", Command: "run ${yyyyMMdd} ${HOME} ${schedule:HH:mm}", Env: map[string]string{"TZ": "Asia/Shanghai", "PATH": "/opt/bin", "HOME": "/home/etl"},
		Params: map[string]string{"day": "${yyyyMMdd}; $(id)"},
	}}}
	b := &capri.Batch{ID: 5, BatchNo: "20261119", RunNo: 1, Attempt: 3, DataStart: capri.InstantOf(time.Date(2026, 11, 18, 16, 0, 0, 0, time.UTC)),
		DataEnd: capri.InstantOf(time.Date(2026, 11, 19, 16, 0, 0, 0, time.UTC)), ScheduleTime: capri.InstantOf(time.Date(2026, 11, 19, 16, 1, 0, 0, time.UTC))}
	for range 2 { // the second comes from the cache
		p, err := m.Make(task, b, "/data/jobs/5.3", &Account{Name: "etl", UID: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Argv[len(p.Argv)-1]; got != "run 20261119 ${HOME} 00:01" {
			t.Errorf("the command is %q", got)
		}
		env := slices.Sorted(slices.Values(p.Env))
		want := []string{
			"CAPRI_ATTEMPT=5.3", "CAPRI_BATCH_ID=5", "CAPRI_BATCH_NO=20261119", "CAPRI_DATA_END=2026-11-20T00:00:00+08:00", "CAPRI_DATA_START=2026-11-19T00:00:00+08:00",
			"CAPRI_PRIORITY=0", "CAPRI_RUN_NO=1", "CAPRI_SCHEDULE_TIME=2026-11-20T00:01:00+08:00", "CAPRI_TASK=dwd", "HOME=/home/etl", "LANG=C.UTF-8", "LOGNAME=etl",
			"PARAM_DAY=${yyyyMMdd}; $(id)", "PATH=/data/jobs/5.3:/opt/bin", "PYTHONUNBUFFERED=1", "TZ=Asia/Shanghai", "USER=etl",
		}
		if !slices.Equal(env, want) {
			t.Errorf("the environment is\n%s\nwant\n%s", strings.Join(env, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestParameters_of_a_run_take_the_place_of_its_tasks_for_it_alone(t *testing.T) {
	m := NewMaker(MakerOptions{Calendar: calendar.New(zone(t, "Asia/Shanghai")), Path: "/usr/bin:/bin", Clients: Clients{Path: "/usr/bin:/bin"}})
	task := &capri.Task{ID: 7, Version: 2, Spec: capri.Spec{Name: "dwd", Job: capri.Job{Type: "shell", Command: "x", Params: map[string]string{"day": "1", "Mode": "plain"}}}}
	params := func(b *capri.Batch) string {
		p, err := m.Make(task, b, "/data/jobs/5.3", nil)
		if err != nil {
			t.Fatal(err)
		}
		own := slices.DeleteFunc(slices.Sorted(slices.Values(p.Env)), func(e string) bool { return !strings.HasPrefix(e, "PARAM_") })
		return strings.Join(own, " ")
	}
	for range 2 { // the second comes from the cache
		if got, want := params(&capri.Batch{ID: 5, Params: map[string]string{"mode": "full; $(id)", "more": "2"}}), "PARAM_DAY=1 PARAM_MODE=full; $(id) PARAM_MORE=2"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got, want := params(&capri.Batch{ID: 6}), "PARAM_DAY=1 PARAM_MODE=plain"; got != want {
			t.Errorf("the next run has %q, want %q", got, want)
		}
	}
	if got := withOwn(map[string]string{"Mode": "plain", "day": "1"}, map[string]string{"mode": "full"}); len(got) != 2 || got["mode"] != "full" || got["day"] != "1" {
		t.Errorf("engines are told %v", got)
	}
}

func TestAccounts_are_never_root(t *testing.T) {
	looked := 0
	with := func(uid int, fallback string) *Accounts {
		a := NewAccounts(fallback)
		a.uid = uid
		a.lookup = func(name string) (*Account, error) {
			looked++
			uid, ok := map[string]uint32{"root": 0, "toor": 0, "nobody": 65534, "etl": 1000}[name]
			if !ok {
				return nil, capri.NotFound("there is no account %q on this machine", name)
			}
			return &Account{Name: name, UID: uid}, nil
		}
		return a
	}
	for _, row := range []struct {
		sentence       string
		uid            int
		fallback, name string
		want           string // the account, "us", or what the error says
	}{
		{"root's jobs run as the default account", 0, "nobody", "", "nobody"},
		{"or as the one they name", 0, "nobody", "etl", "etl"},
		{"root is refused", 0, "nobody", "root", "account root is root on this machine"},
		{"by any name", 0, "nobody", "toor", "account toor is root on this machine"},
		{"and as default", 0, "root", "", "account root is root on this machine"},
		{"no default is no root", 0, "", "", "worker.default_account is empty"},
		{"an unknown account is named", 0, "nobody", "ghost", `there is no account "ghost"`},
		{"without root we are who we are", 1000, "nobody", "", "us"},
		{"our own name is us", 1000, "nobody", "etl", "us"},
		{"and we are nobody else", 1000, "nobody", "nobody", "this worker runs as user 1000 and not as root"},
	} {
		t.Run(strings.ReplaceAll(row.sentence, " ", "_"), func(t *testing.T) {
			acc, err := with(row.uid, row.fallback).Of(row.name)
			switch {
			case err != nil:
				if !strings.Contains(err.Error(), row.want) {
					t.Errorf("it says %v", err)
				}
			case acc == nil && row.want != "us", acc != nil && acc.Name != row.want:
				t.Errorf("it runs as %+v", acc)
			}
		})
	}
	looked = 0
	a := with(0, "nobody")
	a.Of("etl")
	a.Of("etl")
	if looked != 1 {
		t.Errorf("one account was looked up %d times", looked)
	}
	if os.Geteuid() == 0 {
		if acc, err := NewAccounts("nobody").Of(""); err != nil || acc.UID == 0 {
			t.Errorf("this machine's nobody: %+v, %v", acc, err)
		}
	}
}
