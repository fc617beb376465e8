// One change over a key, a service instance and a resource by headwater.v1.Store: read, committed, shown, followed.
//
//	scripts/cluster up
//	headwater resource apply -f examples/demo-types.yaml
//	cd examples/store-go
//	go generate         # makes pb/ from the protos; needs protoc
//	go run . korn 127.0.0.1:2379 127.0.0.1:22379 127.0.0.1:32379
//
// An artist takes a stage. The key says who plays, the service instance is where to listen, and the artist is a resource.
// Then every change of the three is printed until Ctrl-C. Stop the member that is followed: the program goes on at another
// one. It needs Go 1.24.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"headwater.example/store/pb/consul"
	"headwater.example/store/pb/demo"
	"headwater.example/store/pb/etcd"
	"headwater.example/store/pb/headwater"
)

//go:generate ./generate

const (
	stage    = "/kv/stages/main"
	instance = "/services/stream/stages/main"
	artists  = "/resources/demo/v2/Artist/default/default/"

	attempt = 5 * time.Second
	total   = 30 * time.Second
)

// store is headwater.v1.Store at one of the members, and at the next one when that fails.
type store struct {
	endpoints []string
	members   []headwater.StoreClient
	at        int
}

func connect(endpoints []string) (*store, error) {
	s := &store{endpoints: endpoints}
	for _, endpoint := range endpoints {
		connection, err := grpc.NewClient(endpoint,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			// A member whose machine is gone does not close its connections: it has 5 s to answer a ping.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, headwater.NewStoreClient(connection))
	}
	return s, nil
}

func (s *store) endpoint() string {
	return s.endpoints[s.at]
}

// read returns the entities of the targets, all at one index.
func (s *store) read(ctx context.Context, targets []string) (*headwater.ReadResponse, error) {
	request := &headwater.ReadRequest{Targets: targets}
	return call(ctx, s, func(ctx context.Context, member headwater.StoreClient) (*headwater.ReadResponse, error) {
		return member.Read(ctx, request)
	})
}

// commit commits once, however often the request is sent: it needs an idempotency key.
func (s *store) commit(ctx context.Context, request *headwater.CommitRequest) (*headwater.CommitResponse, error) {
	return call(ctx, s, func(ctx context.Context, member headwater.StoreClient) (*headwater.CommitResponse, error) {
		// The trailer of a refusal has the number of the condition that does not hold.
		var trailer metadata.MD
		answer, err := member.Commit(ctx, request, grpc.Trailer(&trailer))
		if number := trailer.Get("headwater-condition"); status.Code(err) == codes.FailedPrecondition && len(number) > 0 {
			err = &changed{condition: number[0], refusal: err}
		}
		return answer, err
	})
}

// changed is the error of a commit of which a condition does not hold.
type changed struct {
	condition string
	refusal   error
}

func (c *changed) Error() string { return c.refusal.Error() }
func (c *changed) Unwrap() error { return c.refusal }

func call[T any](ctx context.Context, s *store, ask func(context.Context, headwater.StoreClient) (T, error)) (T, error) {
	giveUp := time.Now().Add(total)
	for {
		one, cancel := context.WithTimeout(ctx, attempt)
		answer, err := ask(one, s.members[s.at])
		cancel()
		if err == nil || time.Now().After(giveUp) {
			return answer, err
		}
		if err := s.leave(ctx, err); err != nil {
			return answer, err
		}
	}
}

// history gives each message with changes after a position to show, and returns the position after the last one. Each change
// comes once, whatever members stop; but a command that comes in parts (Continued) begins again if its stream breaks within it.
func (s *store) history(
	ctx context.Context, targets []string, position *headwater.Point, live bool, show func(*headwater.HistoryResponse),
) (*headwater.Point, error) {
	for {
		request := &headwater.HistoryRequest{Targets: targets, From: position, Live: live}
		stream, err := s.members[s.at].History(ctx, request)
		for err == nil {
			var message *headwater.HistoryResponse
			if message, err = stream.Recv(); err == nil {
				position = point(message.Reached, message.Epoch)
				show(message)
			}
		}
		if errors.Is(err, io.EOF) {
			return position, nil
		}
		if err := s.leave(ctx, err); err != nil {
			return position, err
		}
	}
}

// leave turns to the next member; it returns the error if that would answer the same.
func (s *store) leave(ctx context.Context, err error) error {
	// Another member may do better. Whether a commit took effect is open then.
	if code := status.Code(err); ctx.Err() != nil || code != codes.Unavailable && code != codes.DeadlineExceeded {
		return err
	}
	fmt.Printf("%s: %v\n", s.endpoint(), status.Code(err))
	s.at = (s.at + 1) % len(s.members)
	time.Sleep(200 * time.Millisecond)
	fmt.Printf("going on at %s\n", s.endpoint())
	return nil
}

func point(index uint64, epoch string) *headwater.Point {
	return &headwater.Point{Point: &headwater.Point_Index{Index: index}, Epoch: epoch}
}

// takeStage lets the artist play, whatever others do at the same time. It returns the state before, the request, and the
// answer.
func (s *store) takeStage(
	ctx context.Context, artist string,
) (*headwater.ReadResponse, *headwater.CommitRequest, *headwater.CommitResponse, error) {
	for {
		state, err := s.read(ctx, targets(artist))
		if err != nil {
			return nil, nil, nil, err
		}
		request, err := change(artist, state)
		if err != nil {
			return nil, nil, nil, err
		}
		done, err := s.commit(ctx, request)
		if broken := (*changed)(nil); errors.As(err, &broken) {
			// The request cannot take effect any more: what has changed stays changed.
			fmt.Printf("condition %s does not hold since #%d: reading again\n", broken.condition, state.Index)
			continue
		}
		return state, request, done, err
	}
}

func targets(artist string) []string {
	return []string{stage, instance, artists + artist}
}

// change returns the commit that lets the artist play if nothing has changed since the state was read.
func change(artist string, state *headwater.ReadResponse) (*headwater.CommitRequest, error) {
	data, err := anypb.New(&demo.Artist{Name: artist})
	if err != nil {
		return nil, err
	}
	resource := &consul.Resource{
		Id: &consul.ID{
			Name:    artist,
			Type:    &consul.Type{Group: "demo", GroupVersion: "v2", Kind: "Artist"},
			Tenancy: &consul.Tenancy{Partition: "default", Namespace: "default"},
		},
		Data: data,
	}
	for _, entity := range state.Entities {
		if entity.Path == artists+artist {
			if err := entity.Data.UnmarshalTo(resource); err != nil {
				return nil, err
			}
		}
	}
	if resource.Metadata == nil {
		resource.Metadata = map[string]string{}
	}
	resource.Metadata["stage"] = "main"

	put := &etcd.PutRequest{Key: []byte("stages/main"), Value: []byte(artist)}
	register := &headwater.Register{
		Node:    &consul.Node{Node: "stages", Address: "127.0.0.1"},
		Service: &consul.NodeService{Service: "stream", ID: "main", Port: 8000, Meta: map[string]string{"artist": artist}},
	}
	write := &consul.WriteRequest{Resource: resource}
	request := &headwater.CommitRequest{
		Operations: []*headwater.Operation{
			{Operation: &headwater.Operation_Put{Put: put}},
			{Operation: &headwater.Operation_Register{Register: register}},
			{Operation: &headwater.Operation_WriteResource{WriteResource: write}},
		},
		// New for each change, the same whenever this one is sent.
		IdempotencyKey: []byte(rand.Text()),
	}
	for _, target := range targets(artist) {
		unchanged := &headwater.Condition_UnchangedSince{UnchangedSince: state.Index}
		request.Conditions = append(request.Conditions, &headwater.Condition{Target: target, Condition: unchanged})
	}
	return request, nil
}

// show prints the changes of a message of the history.
func show(message *headwater.HistoryResponse) {
	for _, command := range message.Commands {
		at := time.UnixMilli(command.UnixMs).UTC()
		fmt.Printf("#%d %s by %s\n", command.Index, at.Format(time.TimeOnly), command.Face)
		for _, change := range command.Changes {
			kind := strings.ToLower(change.Kind.String())
			fmt.Printf("  %s %s: %s -> %s\n", kind, change.Path, words(change.Before), words(change.After))
		}
	}
}

// words tells an entity in a few words. Its space decides what its data is.
func words(entity *headwater.Entity) string {
	if entity == nil {
		return "nothing"
	}
	data, err := entity.Data.UnmarshalNew()
	if err != nil {
		return err.Error()
	}
	switch data := data.(type) {
	case *etcd.KeyValue:
		return string(data.Value)
	case *consul.CheckServiceNode:
		return fmt.Sprintf("%s:%d %s", data.Node.Address, data.Service.Port, data.Service.Meta["artist"])
	case *consul.Resource:
		return fmt.Sprintf("version %s, stage %s", data.Version, data.Metadata["stage"])
	default:
		return "nothing"
	}
}

func run(ctx context.Context, artist string, endpoints []string) error {
	s, err := connect(endpoints)
	if err != nil {
		return err
	}
	before, request, done, err := s.takeStage(ctx, artist)
	if err != nil {
		return err
	}
	fmt.Printf("read at #%d\n", before.Index)
	for _, entity := range before.Entities {
		fmt.Printf("  %s: %s\n", entity.Path, words(entity))
	}
	fmt.Printf("committed at #%d, revision %d\n", done.Index, done.Revision)

	// So would a client do whose answer was lost.
	again, err := s.commit(ctx, request)
	if err != nil {
		return err
	}
	how := map[bool]string{true: "done before", false: "done"}[again.DoneBefore]
	fmt.Printf("sent again: %s at #%d\n", how, again.Index)

	position, err := s.history(ctx, targets(artist), point(before.Index, before.Epoch), false, show)
	if err != nil {
		return err
	}
	fmt.Printf("following at %s from #%d\n", s.endpoint(), position.GetIndex())
	_, err = s.history(ctx, targets(artist), position, true, show)
	return err
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: store ARTIST ENDPOINT...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2:]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
