// Asks a server through lib/pq or pgx, as versions of Grafana do. First argument: the driver, postgres or pgx.
// Second: the address. Questions come on standard input, one a line. Each row is printed with tabs between its
// values, and "--" after the last.
package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v4/stdlib"
	_ "github.com/lib/pq"
)

func main() {
	db, err := sql.Open(os.Args[1], os.Args[2])
	check(err)
	defer db.Close()
	questions := bufio.NewScanner(os.Stdin)
	questions.Buffer(nil, 1<<20)
	for questions.Scan() {
		print(db.Query(questions.Text()))
	}
	since := time.Date(2024, 2, 3, 0, 0, 0, 0, time.UTC)
	print(db.Query("SELECT count(*), sum(fare) FROM trips WHERE zone = $1 AND driver LIKE $2 AND day > $3 AND fare < $4",
		2, "%1%", since, 5.5))
	transaction, err := db.Begin()
	check(err)
	print(transaction.Query("SELECT count(*) FROM trips"))
	check(transaction.Commit())
}

func print(rows *sql.Rows, err error) {
	check(err)
	defer rows.Close()
	columns, err := rows.ColumnTypes()
	check(err)
	values := make([]interface{}, len(columns))
	for i := range values {
		values[i] = new(interface{})
	}
	for rows.Next() {
		check(rows.Scan(values...))
		words := make([]string, len(columns))
		for i, value := range values {
			words[i] = shown(*value.(*interface{}), columns[i].DatabaseTypeName())
		}
		fmt.Println(strings.Join(words, "\t"))
	}
	check(rows.Err())
	fmt.Println("--")
}

func shown(value interface{}, kind string) string {
	switch known := value.(type) {
	case nil:
		return ""
	case bool:
		return map[bool]string{true: "t", false: "f"}[known]
	case []byte:
		return string(known)
	case time.Time:
		if kind == "DATE" {
			return known.Format("2006-01-02")
		}
		return known.Format("2006-01-02 15:04:05")
	}
	return fmt.Sprint(value)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
