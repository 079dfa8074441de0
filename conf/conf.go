// Package conf reads the configuration of every capri process: built-in values, overridden by the file
// (conf/capri.yaml, or --config FILE), overridden by the environment, overridden by flags.
//
//	built-in < file < CAPRI_… < command line
//
// The struct Config is the list of keys: a field's tag is its name in the file, its place in the struct is the
// path (database.dsn), the path in capitals is the variable (CAPRI_DATABASE_DSN), its type says what it takes.
// To add a key, add a field, its value in Default, a check in validate if it has bounds, and its line in
// capri.yaml; a test holds the file and the struct together.
//
// Load promises that a Config it returns is valid, and that an error names everything that is wrong, not only
// the first thing. It keeps secrets out of messages and out of Print.
package conf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // the business zone must be known on machines without zone files, too

	"capri"
	"capri/certs"
	"capri/definition/nearest"
	"capri/sql/dialect"
)

// DefaultFile is read when nobody names another; it need not exist.
const DefaultFile = "conf/capri.yaml"

// Config is the effective configuration. Every key is explained in capri.yaml.
type Config struct {
	Timezone   string     `conf:"timezone"`
	Data       string     `conf:"data"`
	Listen     string     `conf:"listen"`
	TLS        ServerTLS  `conf:"tls"`
	API        API        `conf:"api"`
	Log        Log        `conf:"log"`
	Database   Database   `conf:"database"`
	Redis      Redis      `conf:"redis"`
	Node       Node       `conf:"node"`
	Worker     Worker     `conf:"worker"`
	Dependency Dependency `conf:"dependency"`
	HDFS       HDFS       `conf:"hdfs"`
	Dispatch   Dispatch   `conf:"dispatch"`
	Lease      Lease      `conf:"lease"`
	Quality    Quality    `conf:"quality"`
	Monitor    Monitor    `conf:"monitor"`
	Alerting   Alerting   `conf:"alerting"`
	Watch      Watch      `conf:"watch"`

	Probes   []Probe   // what monitor.probes_file lists
	Gateways []Gateway // what alerting.gateways_file lists

	zone   *time.Location
	origin map[string]string // where each key that is not built in came from
}

// API bounds what one caller may ask of one process.
type API struct {
	Rate  int `conf:"rate"` // requests a second; 0: no limit
	Burst int `conf:"burst"`
}

// ServerTLS is how the API is served over TLS: with a Cert it is, without in plain HTTP; and, with a CA, workers' logs.
type ServerTLS struct {
	Cert     string `conf:"cert"`
	Key      string `conf:"key"`
	ClientCA string `conf:"client_ca"`
	CA       string `conf:"ca"`
}

// TLS is how a server is reached over TLS: with a CA it is, and its certificate is checked.
type TLS struct {
	CA         string `conf:"ca"`
	Cert       string `conf:"cert"`
	Key        string `conf:"key"`
	ServerName string `conf:"server_name"`
}

// Files are t for package certs; field is the section, for messages.
func (t TLS) Files(field string) certs.Files {
	return certs.Files{Field: field, CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName}
}

// Log says how much is logged and in which form.
type Log struct {
	Level  string `conf:"level"`
	Format string `conf:"format"`
}

// Database says where the truth is kept: SQLite in the data directory unless a DSN names MySQL or MariaDB.
type Database struct {
	DSN          string `conf:"dsn,secret"`
	PasswordFile string `conf:"password_file"`
	Connections  int    `conf:"connections"`
	Beats        int    `conf:"beat_connections"`
	TLS          TLS    `conf:"tls"`
}

// Drivers that Database.Driver names.
const (
	SQLite = "sqlite"
	MySQL  = "mysql"
)

// Driver follows from the DSN, so that the two can never contradict each other.
func (d Database) Driver() string {
	if d.DSN == "" {
		return SQLite
	}
	return MySQL
}

// Redis makes things quicker where there is one; an empty Addr is a valid choice.
type Redis struct {
	Addr         string `conf:"addr"`
	Password     string `conf:"password,secret"`
	PasswordFile string `conf:"password_file"`
	DB           int    `conf:"db"`
	TLS          TLS    `conf:"tls"`
}

// Node is how this machine registers as a worker, and how long it may run jobs unheard (design §5.2).
type Node struct {
	Name         string        `conf:"name"`
	Pool         string        `conf:"pool"`
	Slots        int           `conf:"slots"`
	MemoryMB     int           `conf:"memory_mb"`
	BeatInterval time.Duration `conf:"beat_interval"`
	StartWithin  time.Duration `conf:"start_within"`
	KillAfter    time.Duration `conf:"kill_after"`
	KillGrace    time.Duration `conf:"kill_grace"`
	LostAfter    time.Duration `conf:"lost_after"` // read by masters
	OnLeaseLost  string        `conf:"on_lease_lost"`
}

// The choices of Node.OnLeaseLost.
const (
	LeaseKill = "kill"
	LeaseWait = "wait"
)

// LostSlack is how much later masters give a silent node's batches away than the last of its jobs was killed: for the
// looks that they take some seconds apart, and for processes that die slowly.
const LostSlack = 15 * time.Second

// Worker is how a worker takes and starts jobs.
type Worker struct {
	DefaultAccount string        `conf:"default_account"`
	PollInterval   time.Duration `conf:"poll_interval"`
	ClaimLimit     int           `conf:"claim_limit"`
	Path           string        `conf:"path"`
	PassEnv        []string      `conf:"pass_env"`
	KeepDays       int           `conf:"keep_days"`
	LogLimitMB     int           `conf:"log_limit_mb"`
	LogStore       string        `conf:"log_store"`
	LogStoreDays   int           `conf:"log_store_days"`
	MinFreeMB      int           `conf:"min_free_mb"`
	MaxLoadPercent int           `conf:"max_load_percent"`
	OverMemory     string        `conf:"over_memory"`
	Cgroups        string        `conf:"cgroups"`
	HTTPAllow      []string      `conf:"http_allow"`
	Clients        Clients       `conf:"clients"`
}

// The choices of Worker.OverMemory and Worker.Cgroups.
const (
	OverMemoryTell = "tell"
	OverMemoryEnd  = "end"
	CgroupsAuto    = "auto"
	CgroupsOff     = "off"
)

// Clients are the programs of a worker that run jobs of some types; what is empty is looked for in Worker.Path.
type Clients struct {
	Python string `conf:"python"`
	Java   string `conf:"java"`
	Hive   string `conf:"hive"`
	Spark  string `conf:"spark"`
	Trino  string `conf:"trino"`
	Hadoop string `conf:"hadoop"`
	Yarn   string `conf:"yarn"`
}

// ByName gives those that are configured.
func (c Clients) ByName() map[string]string {
	return map[string]string{"python": c.Python, "java": c.Java, "hive": c.Hive, "spark": c.Spark, "trino": c.Trino, "hadoop": c.Hadoop, "yarn": c.Yarn}
}

// Dependency is how waiting batches' conditions are looked at.
type Dependency struct {
	Interval    time.Duration `conf:"interval"`
	Parallel    int           `conf:"parallel"`
	PathTimeout time.Duration `conf:"path_timeout"`
}

// HDFS is the file systems behind hdfs:// paths; without NameNodes there are none. Kerberos is used where there is a
// principal.
type HDFS struct {
	NameNodes          []string      `conf:"name_nodes"`
	User               string        `conf:"user"`
	Connections        int           `conf:"connections"`
	Timeout            time.Duration `conf:"timeout"`
	RoundTimeout       time.Duration `conf:"round_timeout"`
	RetryAfter         time.Duration `conf:"retry_after"`
	FileLimitMB        int           `conf:"file_limit_mb"`
	CacheMB            int           `conf:"cache_mb"`
	DataNodesBy        string        `conf:"data_nodes_by"`
	Protection         string        `conf:"protection"`
	KerberosPrincipal  string        `conf:"kerberos_principal"`
	KerberosKeytab     string        `conf:"kerberos_keytab"` // a file; what is in it never passes through here
	KerberosConfig     string        `conf:"kerberos_config"`
	KerberosNameNodeAs string        `conf:"kerberos_name_node"`
}

// NameService is one HDFS: what paths call it, and the addresses of its name-nodes, of which one is active.
type NameService struct {
	Name      string
	NameNodes []string
}

// NameServices reads NameNodes, in their order. An item is NAME=HOST:PORT, items of one name are its name-nodes; without
// a name, HOST:PORT is the name too.
func (h HDFS) NameServices() []NameService {
	var list []NameService
	for _, item := range h.NameNodes {
		name, address, named := strings.Cut(strings.ToLower(item), "=")
		if !named {
			address = name
		}
		at := slices.IndexFunc(list, func(s NameService) bool { return s.Name == name })
		if at < 0 {
			at = len(list)
			list = append(list, NameService{Name: name})
		}
		list[at].NameNodes = append(list[at].NameNodes, address)
	}
	return list
}

// Dispatch is how ready batches are handed to nodes.
type Dispatch struct {
	Interval time.Duration `conf:"interval"`
}

// Quality is the quality API, which says whether batches of tasks with a quality gate may run.
type Quality struct {
	URL       string        `conf:"url"`
	Token     string        `conf:"token,secret"`
	TokenFile string        `conf:"token_file"`
	Timeout   time.Duration `conf:"timeout"`
	Callback  string        `conf:"callback"`
}

// Monitor is what the monitor looks after besides Capri itself; its thresholds are settings in the database.
type Monitor struct {
	ProbesFile string `conf:"probes_file"`
}

// Alerting is how alerts reach people: what they read, and by which channels.
type Alerting struct {
	Link             string        `conf:"link"`
	Language         string        `conf:"language"`
	MailServer       string        `conf:"mail_server"`
	MailTLS          string        `conf:"mail_tls"`
	MailFrom         string        `conf:"mail_from"`
	MailUser         string        `conf:"mail_user"`
	MailPassword     string        `conf:"mail_password,secret"`
	MailPasswordFile string        `conf:"mail_password_file"`
	MailTimeout      time.Duration `conf:"mail_timeout"`
	MailTries        int           `conf:"mail_tries"`
	MailParallel     int           `conf:"mail_parallel"`
	MailPerMinute    int           `conf:"mail_per_minute"`
	GatewaysFile     string        `conf:"gateways_file"`
	Templates        string        `conf:"templates"`
}

// Watch is capri watch, which stands outside and uses nothing else of this configuration but log.
type Watch struct {
	DSN              string        `conf:"dsn,secret"`
	PasswordFile     string        `conf:"password_file"`
	TLS              TLS           `conf:"tls"`
	API              []string      `conf:"api"`
	Interval         time.Duration `conf:"interval"`
	DatabaseSilence  time.Duration `conf:"database_silence"`
	APISilence       time.Duration `conf:"api_silence"`
	MastersSilence   time.Duration `conf:"masters_silence"`
	MonitorSilence   time.Duration `conf:"monitor_silence"`
	Webhook          string        `conf:"webhook,secret"` // such addresses often hold a key
	MailServer       string        `conf:"mail_server"`
	MailTLS          string        `conf:"mail_tls"`
	MailFrom         string        `conf:"mail_from"`
	MailTo           []string      `conf:"mail_to"`
	MailUser         string        `conf:"mail_user"`
	MailPassword     string        `conf:"mail_password,secret"`
	MailPasswordFile string        `conf:"mail_password_file"`
}

// Lease is how masters agree on who runs a service.
type Lease struct {
	TTL   time.Duration `conf:"ttl"`
	Renew time.Duration `conf:"renew"`
}

// Default gives the built-in values, before anything is derived from the machine (see derive).
func Default() *Config {
	return &Config{
		Timezone: "UTC",
		Data:     "./capri-data",
		Listen:   "127.0.0.1:8680",
		API:      API{Rate: 100, Burst: 500},
		Log:      Log{Level: "info", Format: "text"},
		Database: Database{Connections: 20, Beats: 3},
		Node: Node{
			Pool:         "default",
			BeatInterval: 5 * time.Second,
			StartWithin:  120 * time.Second,
			KillAfter:    150 * time.Second,
			KillGrace:    10 * time.Second,
			LostAfter:    180 * time.Second,
			OnLeaseLost:  LeaseKill,
		},
		Worker: Worker{
			DefaultAccount: "nobody",
			PollInterval:   500 * time.Millisecond,
			ClaimLimit:     100,
			Path:           "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			PassEnv:        []string{"LANG", "LC_ALL", "TZ"},
			KeepDays:       7,
			LogLimitMB:     512,
			LogStoreDays:   30,
			MinFreeMB:      64,
			OverMemory:     OverMemoryTell,
			Cgroups:        CgroupsAuto,
		},
		Dependency: Dependency{Interval: 30 * time.Second, Parallel: 16, PathTimeout: 10 * time.Second},
		HDFS: HDFS{Connections: 4, Timeout: 10 * time.Second, RoundTimeout: 30 * time.Second, RetryAfter: 5 * time.Second, FileLimitMB: 512, CacheMB: 2048,
			DataNodesBy: "address", KerberosConfig: "/etc/krb5.conf", KerberosNameNodeAs: "nn/_HOST"},
		Dispatch: Dispatch{Interval: time.Second},
		Lease:    Lease{TTL: 6 * time.Second, Renew: 2 * time.Second},
		Quality:  Quality{Timeout: 10 * time.Second},
		Alerting: Alerting{Language: "en", MailTLS: "starttls", MailTimeout: builtInLimits.Timeout, MailTries: builtInLimits.Tries,
			MailParallel: builtInLimits.Parallel, MailPerMinute: builtInLimits.PerMinute},
		Watch: Watch{Interval: 15 * time.Second, DatabaseSilence: 30 * time.Second, APISilence: 30 * time.Second, MastersSilence: time.Minute,
			MonitorSilence: 5 * time.Minute, MailTLS: "starttls"},
	}
}

// SlotsPerCPU is what node.slots: 0 means. Most jobs of a batch scheduler wait for a cluster or a database, so
// a machine holds several per CPU; tasks that compute say so with worker.slots.
const SlotsPerCPU = 4

// Load reads the configuration. file is DefaultFile unless somebody named another, which explicit tells: a
// missing default file means the built-in values, a missing file that was asked for is an error. overrides
// are the flags that were given, by key ("listen", "database.dsn").
func Load(file string, explicit bool, overrides map[string]string) (*Config, error) {
	c := Default()
	c.origin = map[string]string{}
	given, wrong := readFile(file, explicit)
	// Later layers come later in the list, and simply set the field again.
	given = append(given, fromEnvironment(os.Environ())...)
	for _, key := range sortedKeys(overrides) {
		given = append(given, setting{key: key, text: overrides[key], where: "command line"})
	}

	fields := fieldsOf(c)
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.key)
	}
	bad := map[string]*capri.FieldError{} // by key: a later layer that sets the key rightly cures an earlier one
	for _, s := range given {
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == s.key })
		if i < 0 {
			wrong = append(wrong, &capri.FieldError{Field: s.key, Want: wantKey(s.key, names), Where: s.where})
			continue
		}
		f := fields[i]
		if want := f.set(s.text); want != "" {
			bad[f.key] = &capri.FieldError{Field: f.key, Value: f.shown(s.text), Want: want, Where: s.where}
			continue
		}
		delete(bad, f.key)
		c.origin[f.key] = s.where
	}
	c.readPasswordFiles(bad)
	c.validate(bad)
	if c.Monitor.ProbesFile != "" {
		probes, faults := readProbes(c.Monitor.ProbesFile)
		c.Probes, wrong = probes, append(wrong, faults...)
	}
	if c.Alerting.GatewaysFile != "" {
		gateways, faults := readGateways(c.Alerting.GatewaysFile)
		c.Gateways, wrong = gateways, append(wrong, faults...)
	}
	for _, f := range fields { // in the order of the keys, so that messages are stable
		if e := bad[f.key]; e != nil {
			wrong = append(wrong, e)
		}
	}
	if err := wrong.OrNil(); err != nil {
		return nil, err
	}
	c.derive()
	return c, nil
}

// Zone is the business zone.
func (c *Config) Zone() *time.Location {
	if c.zone == nil { // a Config that a test put together by hand
		zone, err := time.LoadLocation(c.Timezone)
		if err != nil {
			panic(fmt.Sprintf("conf: timezone %q was never validated: %v", c.Timezone, err))
		}
		return zone
	}
	return c.zone
}

// derive fills in what depends on the machine.
func (c *Config) derive() {
	if c.Node.Name == "" {
		// An unknown host name is no reason not to start; two such workers are told apart by their directories.
		if host, err := os.Hostname(); err == nil && validName(host) {
			c.Node.Name = host
		} else {
			c.Node.Name = "localhost"
		}
		c.origin["node.name"] = "the host's name"
	}
	if c.Node.Slots == 0 {
		c.Node.Slots = SlotsPerCPU * runtime.NumCPU()
		c.origin["node.slots"] = fmt.Sprintf("%d for each of %d CPUs", SlotsPerCPU, runtime.NumCPU())
	}
}

// readPasswordFiles puts the passwords where the drivers look for them. A file keeps a password out of the
// environment and of `ps`, and is what Docker and Kubernetes secrets are.
func (c *Config) readPasswordFiles(bad map[string]*capri.FieldError) {
	read := func(key, file string) string {
		data, err := os.ReadFile(file)
		if err != nil {
			bad[key] = c.wrong(key, file, "a file that can be read: "+reason(err))
		}
		text := strings.TrimRight(string(data), "\r\n")
		if text == "" && bad[key] == nil {
			bad[key] = c.wrong(key, file, "a file that is not empty")
		}
		return text
	}
	for _, d := range []struct {
		key, file, of string
		dsn           *string
	}{
		{"database.password_file", c.Database.PasswordFile, "database.dsn", &c.Database.DSN},
		{"watch.password_file", c.Watch.PasswordFile, "watch.dsn", &c.Watch.DSN},
	} {
		if d.file == "" {
			continue
		}
		switch password := read(d.key, d.file); {
		case bad[d.key] != nil:
		case *d.dsn == "":
			bad[d.key] = c.wrong(d.key, d.file, "a "+d.of+" beside it, since SQLite has no password")
		default:
			dsn, err := dialect.WithPassword(*d.dsn, password)
			if err != nil {
				bad[d.key] = c.wrong(d.key, d.file, err.Error())
			} else {
				*d.dsn = dsn
			}
		}
	}
	for _, p := range []struct {
		key, file, of string
		secret        *string
	}{
		{"redis.password_file", c.Redis.PasswordFile, "redis.password", &c.Redis.Password},
		{"quality.token_file", c.Quality.TokenFile, "quality.token", &c.Quality.Token},
		{"alerting.mail_password_file", c.Alerting.MailPasswordFile, "alerting.mail_password", &c.Alerting.MailPassword},
		{"watch.mail_password_file", c.Watch.MailPasswordFile, "watch.mail_password", &c.Watch.MailPassword},
	} {
		if p.file == "" {
			continue
		}
		secret := read(p.key, p.file)
		if *p.secret != "" && bad[p.key] == nil {
			bad[p.key] = c.wrong(p.key, p.file, "either "+p.of+" or a file, not both")
		}
		*p.secret = secret
	}
	// Whoever guesses this one speaks to the quality API as Capri.
	key := "quality.token"
	if c.Quality.TokenFile != "" {
		key = "quality.token_file"
	}
	if want := weak(c.Quality.Token); want != "" && bad[key] == nil {
		bad[key] = c.wrong(key, mask, want)
	}
}

// wrong makes an error that says where the key's value came from.
func (c *Config) wrong(key, value, want string) *capri.FieldError {
	return &capri.FieldError{Field: key, Value: value, Want: want, Where: c.origin[key]}
}

// wantKey offers the key that was probably meant: of the same section if there is such a section, else of all.
func wantKey(key string, names []string) string {
	place, _, nested := strings.Cut(key, ".")
	var there []string
	for _, n := range names {
		if nested && strings.HasPrefix(n, place+".") {
			there = append(there, n)
		}
	}
	near := ""
	if len(there) == 0 {
		there = names
		near = nearest.Word(key, names)
	} else {
		leaves := make([]string, len(there))
		for i, n := range there {
			leaves[i] = n[len(place)+1:]
		}
		if leaf := nearest.Word(key[len(place)+1:], leaves); leaf != "" {
			near = place + "." + leaf
		}
	}
	if near != "" {
		return "a key that exists; did you mean " + near + "?"
	}
	return "one of the keys of " + DefaultFile + ": " + strings.Join(there, ", ")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// reason cuts the path off a *PathError: the message names the file already.
func reason(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
