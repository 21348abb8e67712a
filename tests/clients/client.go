// Go's clients: client LIBRARY ADDRESS PREFIX SECONDS
//
// The last line of the output is a report as JSON; run.py says what is in it.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Longer than any hazard: what takes longer is lost.
const patience = 10 * time.Second
const long = 1 << 20

type report struct {
	lock         sync.Mutex
	Requests     int       `json:"requests"`
	Failures     []string  `json:"failures"`
	Once         []string  `json:"once"`
	AtMostOnce   []string  `json:"at_most_once"`
	Milliseconds []float64 `json:"milliseconds"`
}

var (
	told            = report{Failures: []string{}, Once: []string{}, AtMostOnce: []string{}}
	address, prefix string
	seconds         float64
	// As fmt prints it.
	errNone error
)

func expect(what string, got, wanted any) {
	told.lock.Lock()
	defer told.lock.Unlock()
	told.Requests++
	if !reflect.DeepEqual(got, wanted) {
		told.Failures = append(told.Failures, fmt.Sprintf("%s: %.200s, not %.100s", what, fmt.Sprint(got), fmt.Sprint(wanted)))
	}
}

func note(list *[]string, name string) string {
	told.lock.Lock()
	defer told.lock.Unlock()
	*list = append(*list, name)
	return name
}

func timed(call func()) {
	start := time.Now()
	call()
	took := float64(time.Since(start).Microseconds()) / 1000
	told.lock.Lock()
	defer told.lock.Unlock()
	told.Milliseconds = append(told.Milliseconds, took)
}

// Runs each loop, with numbers that no other one gets, until the time is up.
func work(loops ...func(number int)) {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var all sync.WaitGroup
	for first, loop := range loops {
		all.Go(func() {
			for number := first; time.Now().Before(end); number += len(loops) {
				loop(number)
			}
		})
	}
	all.Wait()
}

func goRedis() {
	forever := context.Background()
	connect := func(connections int) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: address, PoolSize: connections, ReadTimeout: patience,
			MaxRetries: -1, ContextTimeoutEnabled: true})
	}
	reader := connect(2)
	// A client reads what it has written on the same connection, so each loop that writes has one alone.
	writers := []*redis.Client{connect(1), connect(1)}
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	items := func(count int) (keys []string) {
		for i := range count {
			keys = append(keys, fmt.Sprintf("item:%d", i))
		}
		return keys
	}
	read := func(number int) {
		key := fmt.Sprintf("item:%d", number%100)
		timed(func() { expect("GET", fmt.Sprint(reader.Get(forever, key).Result()), fmt.Sprint(key, errNone)) })
		replies, err := reader.Pipelined(forever, func(pipe redis.Pipeliner) error {
			for _, key := range items(10) {
				pipe.Get(forever, key)
			}
			return nil
		})
		var values []string
		for _, reply := range replies {
			values = append(values, reply.(*redis.StringCmd).Val())
		}
		expect("pipeline of GET", fmt.Sprint(values, err), fmt.Sprint(items(10), errNone))
	}
	write := func(number int) {
		client := writers[number%2]
		name := fmt.Sprintf("%s:once:%d", prefix, number)
		expect("INCR", fmt.Sprint(client.Incr(forever, name).Result()), fmt.Sprint(1, errNone))
		expect("GET after INCR", fmt.Sprint(client.Get(forever, note(&told.Once, name)).Result()), fmt.Sprint("1", errNone))
		run := client.Pipelined
		if number%10 == 0 {
			run = client.TxPipelined
		}
		_, err := run(forever, func(pipe redis.Pipeliner) error {
			pipe.Incr(forever, name+"p")
			pipe.RPush(forever, fmt.Sprintf("%s:list:%d", prefix, number), "a")
			return nil
		})
		expect("pipeline of writes", err, nil)
		note(&told.Once, name+"p")
		switch {
		case number%10 == 1:
			reply, err := script.Run(forever, client, []string{name + "s"}).Int()
			expect("EVALSHA", fmt.Sprint(reply, err), fmt.Sprint(1, errNone))
			note(&told.Once, name+"s")
		case number%10 == 2:
			value := strings.Repeat("x", 900_000)
			key := fmt.Sprintf("%s:long:%d", prefix, number)
			expect("SET of 900 kB", client.Set(forever, key, value, 0).Err(), nil)
			got, err := client.Get(forever, key).Result()
			expect("GET of 900 kB", fmt.Sprint(got == value, err), fmt.Sprint(true, errNone))
		case number%10 == 3:
			hurry, cancel := context.WithTimeout(forever, 100*time.Millisecond)
			defer cancel()
			err := client.BLPop(hurry, 0, prefix+":none").Err()
			expect("BLPOP in 0.1 s is late", errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded), true)
		case number%10 == 4:
			hurry, cancel := context.WithCancel(forever)
			go func() { time.Sleep(time.Millisecond); cancel() }()
			_ = client.Incr(hurry, note(&told.AtMostOnce, name+"c")).Err()
		}
	}
	work(read, read, write, write)
}

func netHTTP() {
	client := &http.Client{}
	ask := func(context context.Context, method, path, body string) (string, error) {
		request, err := http.NewRequestWithContext(context, method, "http://"+address+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		bytes, err := io.ReadAll(response.Body)
		return string(bytes), err
	}
	within := func(time time.Duration, method, path, body string) (string, error) {
		limit, cancel := context.WithTimeout(context.Background(), time)
		defer cancel()
		return ask(limit, method, path, body)
	}
	get := func(number int) {
		timed(func() {
			got, err := within(patience, "GET", fmt.Sprintf("/item/%d", number), "")
			expect("GET", fmt.Sprint(got, err), fmt.Sprint(fmt.Sprintf("item %d", number), errNone))
		})
		if number%5 == 0 {
			got, err := within(patience, "GET", "/long/200000", "")
			expect("GET in chunks", fmt.Sprint(len(got), err), fmt.Sprint(200_000, errNone))
		}
	}
	post := func(number int) {
		name := fmt.Sprintf("%s:%d", prefix, number)
		body := name
		if number%5 == 2 {
			body = strings.Repeat(name, long/len(name))
		}
		sum := sha256.Sum256([]byte(body))
		got, err := within(patience, "POST", "/once/"+name, body)
		expect("POST", fmt.Sprint(got, err), fmt.Sprint(hex.EncodeToString(sum[:]), errNone))
		note(&told.Once, name)
		switch {
		case number%10 == 2:
			_, err := within(100*time.Millisecond, "POST", "/slow/"+note(&told.AtMostOnce, name+"late"), "x")
			expect("POST in 0.1 s is late", errors.Is(err, context.DeadlineExceeded), true)
		case number%10 == 3:
			limit, cancel := context.WithCancel(context.Background())
			go func() { time.Sleep(20 * time.Millisecond); cancel() }()
			_, err := ask(limit, "POST", "/slow/"+note(&told.AtMostOnce, name+"cancelled"), "x")
			expect("cancelled POST", errors.Is(err, context.Canceled), true)
		}
	}
	work(get, get, post, post)
}

func main() {
	address, prefix = os.Args[2], os.Args[3]
	var err error
	if seconds, err = strconv.ParseFloat(os.Args[4], 64); err != nil {
		panic(err)
	}
	map[string]func(){"go-redis": goRedis, "net/http": netHTTP}[os.Args[1]]()
	text, err := json.Marshal(&told)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
