package wire

import "time"

// User is somebody who owns tasks and is told when they fail.
type User struct {
	Name       string     `json:"name" required:"false"`
	Department string     `json:"department,omitempty"`
	Mail       string     `json:"mail,omitempty"`
	Phone      string     `json:"phone,omitempty"`
	Enabled    *bool      `json:"enabled,omitempty" doc:"left out: yes"`
	Admin      bool       `json:"admin,omitempty" doc:"is told of trouble of the system; what somebody may do is his role"`
	Role       string     `json:"role,omitempty" enum:"super_admin,admin,member,read_only,none" doc:"left out: as it is; none: no access. Another role ends all sessions"`
	Password   string     `json:"password,omitempty" enum:"set,one_time" readOnly:"true" doc:"in answers: whether there is one"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
}

// Department is what users belong to.
type Department struct {
	Name      string     `json:"name" required:"false"`
	Title     string     `json:"title,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
}

// AccountGrant lets an owner, or a department, run jobs as a system account.
type AccountGrant struct {
	Account   string     `json:"account" minLength:"1" maxLength:"64"`
	Kind      string     `json:"kind" enum:"user,department"`
	Name      string     `json:"name" minLength:"1" maxLength:"128"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
}

// App is a client of the API.
type App struct {
	Name       string     `json:"name" required:"false"`
	Role       string     `json:"role" enum:"super_admin,admin,member,read_only"`
	Enabled    bool       `json:"enabled"`
	Owner      string     `json:"owner,omitempty" maxLength:"128" doc:"who answers for it"`
	Department string     `json:"department,omitempty" maxLength:"128" doc:"what it may change as a member; left out: its owner's"`
	Keys       []Key      `json:"keys,omitempty" readOnly:"true"`
	CreatedAt  *time.Time `json:"created_at,omitempty" readOnly:"true"`
}

// Key is what may be told of a key or a token: all but itself.
type Key struct {
	ID         int64      `json:"id"`
	Holder     string     `json:"holder" doc:"the app, the node, or the user"`
	Name       string     `json:"name,omitempty" doc:"of a token; of a worker's key: its pool"`
	Scopes     []string   `json:"scopes,omitempty" doc:"of a token none is all that its user may"`
	CreatedAt  *time.Time `json:"created_at"`
	CreatedBy  string     `json:"created_by,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at" doc:"null: never"`
	LastUsedAt *time.Time `json:"last_used_at" doc:"to the minute; null: not yet"`
}

// NewApp asks for one.
type NewApp struct {
	Name       string     `json:"name" minLength:"1" maxLength:"128"`
	Role       string     `json:"role" enum:"super_admin,admin,member,read_only"`
	Scopes     []string   `json:"scopes,omitempty" maxItems:"20" doc:"what the key is made for; left out: all that the role may"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty" doc:"left out: never"`
	Owner      string     `json:"owner,omitempty" maxLength:"128"`
	Department string     `json:"department,omitempty" maxLength:"128"`
}

// NewKey is an app's key, shown this once.
type NewKey struct {
	Name     string     `json:"name"`
	Role     string     `json:"role,omitempty"`
	Key      string     `json:"key"`
	OldUntil *time.Time `json:"old_until,omitempty" doc:"of a rotation: how long the keys of before stay good"`
}

// KeyRotation asks for another key.
type KeyRotation struct {
	OverlapS int64 `json:"overlap_s,omitempty" minimum:"0" maximum:"2592000" doc:"how long the keys of now stay good beside the new one; 0: they end at once"`
}

// NewWorkerKey asks for a key that is good for what a worker's machine asks of the API, while its node is in that pool.
type NewWorkerKey struct {
	Node      string     `json:"node" minLength:"1" maxLength:"128"`
	Pool      string     `json:"pool,omitempty" maxLength:"128" doc:"left out: the pool in which the node is"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"left out: never"`
}

// NewToken asks for a token of one's own.
type NewToken struct {
	Name      string     `json:"name" minLength:"1" maxLength:"128"`
	Scopes    []string   `json:"scopes,omitempty" maxItems:"20" doc:"left out: all that one may oneself"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"left out: in 90 days; at most in a year"`
}

// Token is a new one, shown this once.
type Token struct {
	Name      string     `json:"name"`
	Token     string     `json:"token"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// LogIn asks for a session.
type LogIn struct {
	User     string `json:"user" minLength:"1" maxLength:"128"`
	Password string `json:"password" minLength:"1" maxLength:"1024"`
	Use      string `json:"use,omitempty" enum:"browser,command" default:"browser" doc:"browser: the session comes as a cookie; command: as a token in the answer"`
}

// Session is what somebody has who has logged in.
type Session struct {
	User           string     `json:"user"`
	Token          string     `json:"token,omitempty" doc:"of a session for commands; shown this once"`
	ExpiresAt      *time.Time `json:"expires_at"`
	ChangePassword bool       `json:"change_password" doc:"the password was a one-time one: nothing else can be done before it is changed"`
}

// PasswordChange sets one's own password.
type PasswordChange struct {
	Old string `json:"old" minLength:"1" maxLength:"1024"`
	New string `json:"new" minLength:"1" maxLength:"1024"`
}

// OneTimePassword is handed to a user, who has to change it; shown this once.
type OneTimePassword struct {
	User      string     `json:"user"`
	Password  string     `json:"password"`
	ExpiresAt *time.Time `json:"expires_at" doc:"the first log-in has to come before"`
}

// Me is who calls.
type Me struct {
	Kind           string   `json:"kind" enum:"user,app"`
	Name           string   `json:"name"`
	Role           string   `json:"role"`
	Department     string   `json:"department,omitempty"`
	Scopes         []string `json:"scopes,omitempty" doc:"of a key or token that is not for everything"`
	Session        bool     `json:"session" doc:"logged in, and not by a token"`
	ChangePassword bool     `json:"change_password"`
}
