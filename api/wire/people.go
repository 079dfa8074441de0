package wire

import "time"

// User is somebody who owns tasks and is told when they fail.
type User struct {
	Name       string     `json:"name" required:"false"`
	Department string     `json:"department,omitempty"`
	Mail       string     `json:"mail,omitempty"`
	Phone      string     `json:"phone,omitempty"`
	Enabled    *bool      `json:"enabled,omitempty" doc:"left out: yes"`
	Admin      bool       `json:"admin,omitempty" doc:"is told of trouble of the system"`
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
	Name      string     `json:"name"`
	Role      string     `json:"role" enum:"super_admin,admin,member,read_only"`
	Enabled   bool       `json:"enabled"`
	CreatedAt *time.Time `json:"created_at"`
}

// NewApp asks for one.
type NewApp struct {
	Name string `json:"name" minLength:"1" maxLength:"128"`
	Role string `json:"role" enum:"super_admin,admin,member,read_only"`
}

// NewKey is an app's key, shown this once.
type NewKey struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Key  string `json:"key"`
}
