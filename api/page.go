package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"capri/api/wire"
)

// Lists that can grow come in pages. The input of such an operation embeds Paging, its handler asks the store for one
// row more than the page holds, from the position of the page before on, and answers with paged:
//
//	from, err := after[int64](&in.Paging) // its zero value: the first page
//	rows, err := s.Store.Things(ctx, from, in.Limit+1)
//	return paged(&in.Paging, rows, func(r store.Thing) any { return r.ID }, each(s.wireThing))
//
// A position is the sort key of a page's last row, so rows that come or go meanwhile neither repeat nor hide others, and
// the database finds its place by an index. Any server goes on with another's cursor.
//
// A cursor also holds a sum over the list, its filters and the position, so that one that was cut, made up, or sent with
// other filters is refused and does not give a wrong page. It is no secret and opens nothing: filters and rights
// are asked anew for every page.

// Paging is embedded by the inputs of lists.
type Paging struct {
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"rows of a page"`
	Cursor   string `query:"cursor" maxLength:"2000" doc:"next of the page before, with the same filters"`
	url      url.URL
	position []byte
}

const cursorSum = 12

// Resolve is called by huma when the request has been read.
func (p *Paging) Resolve(ctx huma.Context) []error {
	p.url = ctx.URL()
	if p.Cursor == "" {
		return nil
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(p.Cursor)
	if err != nil || len(data) < cursorSum || !bytes.Equal(data[:cursorSum], p.sum(data[cursorSum:])) {
		return []error{&huma.ErrorDetail{Location: "query.cursor", Value: p.Cursor, Message: "next of the page before, with the same filters and order"}}
	}
	p.position = data[cursorSum:]
	return nil
}

// sum is over what a cursor is good for: this list, these filters, this position.
func (p *Paging) sum(position []byte) []byte {
	q := p.url.Query()
	q.Del("cursor")
	q.Del("limit") // pages may change their size
	h := sha256.New()
	h.Write([]byte(p.url.Path + "\x00" + q.Encode() + "\x00")) // never fails
	h.Write(position)
	return h.Sum(nil)[:cursorSum]
}

// after gives the position of the page before; its zero value stands for the first page.
func after[K any](p *Paging) (k K, err error) {
	if p.position != nil {
		err = json.Unmarshal(p.position, &k)
	}
	return k, err
}

type pageOutput[T any] struct {
	Link string `header:"Link" doc:"the next page, as rel=\"next\""`
	Body wire.Page[T]
}

// paged answers with at most the limit of rows; that there are more is why there is a next page. key gives the position
// of a row.
func paged[R, T any](p *Paging, rows []R, key func(R) any, write func([]R) ([]T, error)) (*pageOutput[T], error) {
	out := &pageOutput[T]{}
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		position, err := json.Marshal(key(rows[len(rows)-1]))
		if err != nil {
			return nil, err
		}
		out.Body.Next = base64.RawURLEncoding.EncodeToString(append(p.sum(position), position...))
		q := p.url.Query()
		q.Set("cursor", out.Body.Next)
		out.Link = "<" + p.url.EscapedPath() + "?" + q.Encode() + `>; rel="next"`
	}
	var err error
	if out.Body.Items, err = write(rows); out.Body.Items == nil {
		out.Body.Items = []T{} // never null
	}
	return out, err
}

// each makes a writer of rows of a writer of one.
func each[R, T any](write func(R) T) func([]R) ([]T, error) {
	return func(rows []R) ([]T, error) {
		out := make([]T, len(rows))
		for i, r := range rows {
			out[i] = write(r)
		}
		return out, nil
	}
}
