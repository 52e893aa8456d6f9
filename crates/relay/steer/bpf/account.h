/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What passes of connections, split or not, counted alike and at the same point: where their packets
 * come in. A packet that passes twice, by a VLAN's link and the one below it, counts once. */
#pragma once

#include "upload.h"

/* Payload further ahead than this of what was last seen is not believed: no window is larger
 * (RFC 7323, 2.3). */
#define FURTHEST (1 << 30)
/* How long a prefix is passed whose answers come by another way. Then it is tried again. */
#define ASYMMETRIC_FOR (600 * SECOND)

static __always_inline void close(struct flow *flow, enum ending ending, __u64 now)
{
	__u64 waiting = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);
	/* To wake user space takes an interrupt. It looks by itself in time, but is told at each quarter that waits: by several
	 * records, of which some may come on other processors at the same time. */
	bool tell = (waiting + 16 * sizeof(*flow)) / (RECORDS / 4) != waiting / (RECORDS / 4);

	/* Its two directions may end it at the same time, on two processors: it is recorded once. */
	if (__sync_val_compare_and_swap(&flow->ending, OPEN, ending) != OPEN)
		return;
	flow->end_ns = now;
	if (bpf_ringbuf_output(&records, flow, sizeof(*flow), tell ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP))
		count(RECORD_LOST);
}

/* How often processors may be in each other's way before a packet's bytes are left to the next one. */
#define CONTESTS 8

/* Counts the bytes up to `end` that are new; whether there are any. A direction's packets may pass on
 * several processors at the same time, and each byte counts once. */
static __always_inline bool advance(struct course *course, __u32 end)
{
	for (int i = 0; i < CONTESTS; i++) {
		__u32 next = *(volatile __u32 *)&course->next;
		__s32 ahead = end - next;

		if (ahead <= 0 || ahead >= FURTHEST)
			return false;
		if (__sync_val_compare_and_swap(&course->next, next, end) == next) {
			__sync_fetch_and_add(&course->bytes, ahead);
			return true;
		}
	}
	return false;
}

/* Who a direction's bytes are for has acknowledged those before `number`: that is when it has them, whoever passed
 * them on. The numbers of a split connection's two legs are not the same: these are counted from the first. */
static __always_inline void acknowledge(struct course *course, __u32 number, __u64 now)
{
	for (int i = 0; i < CONTESTS; i++) {
		__u32 base = *(volatile __u32 *)&course->base;
		__u32 known = *(volatile __u32 *)&course->acknowledged;
		__s32 ahead = number - base - known;

		if (!base) {
			__sync_val_compare_and_swap(&course->base, 0, number);
			continue;
		}
		if (ahead <= 0 || ahead >= FURTHEST)
			return;
		if (__sync_val_compare_and_swap(&course->acknowledged, known, known + ahead) != known)
			continue;
		/* A FIN has a number, and no payload. */
		if ((__s32)((__u32)course->bytes - known) > 0) {
			course->last_acknowledged_ns = now;
			if (!course->first_acknowledged_ns)
				course->first_acknowledged_ns = now;
		}
		return;
	}
}

/* Whether a direction's FIN has passed and is acknowledged. */
static __always_inline bool is_over(const struct course *course)
{
	__u32 acknowledged = *(volatile __u32 *)&course->acknowledged;

	return *(volatile __u32 *)&course->finished && (__s32)(acknowledged - (__u32)course->bytes) > 0;
}

/* Takes a packet into a connection's account, which may end it. Both directions' packets may pass at the same time, on
 * two processors: one of them at least sees what the other has changed, as it changes its own before it looks. */
static __always_inline void pass(struct flow *flow, struct course *course, const struct packet *packet,
				 enum ending reset, __u64 now)
{
	struct course *other = course == &flow->up ? &flow->down : &flow->up;
	__u32 end = packet->sequence + packet->payload;
	__s32 ahead;

	if ((packet->flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		acknowledge(other, packet->acknowledgement, now);
	if (packet->flags & TCP_SYN) {
		if (!course->next)
			course->next = packet->sequence + 1;
		return;
	}
	/* The SYN has passed on another processor just when the account was begun. */
	if (!course->next && packet->payload)
		course->next = packet->sequence;
	if (packet->payload && advance(course, end)) {
		course->last_ns = now;
		if (!course->first_ns)
			course->first_ns = now;
	}
	if (flow->ending != OPEN)
		return;
	/* A reset that is none of this connection's must not end it (RFC 5961, 3.2). */
	if (packet->flags & TCP_RST) {
		ahead = packet->sequence - course->next;
		if (ahead >= 0 && ahead < FURTHEST)
			close(flow, course->finished && other->finished ? FINISHED : reset, now);
		return;
	}
	if (packet->flags & TCP_FIN)
		__sync_lock_test_and_set(&course->finished, 1);
	if (is_over(course) && is_over(other))
		close(flow, FINISHED, now);
}

/* Begins the account of what a SYN has become. The client's first data and the server's answer may do so at
 * the same time, on two processors: then it is begun once, and both count in it. */
static __always_inline struct flow *begin(struct packet *packet, const struct connection *connection,
					  struct syn_record *syn)
{
	struct flow *flow = &packet->flow, *begun;

	__builtin_memset(flow, 0, sizeof(*flow));
	flow->connection = *connection;
	flow->start_ns = syn->first_ns;
	flow->up.next = syn->sequence + 1;
	/* The relay's legs have numbers of their own. */
	flow->up.base = syn->answered;
	flow->down.base = syn->verdict == SPLIT ? syn->agreed : syn->answer + 1;
	/* 0 while the server has not answered: its SYN or reset is still to come. */
	flow->down.next = syn->stage == ANSWERED ? syn->answer + 1 : 0;
	flow->verdict = syn->verdict;
	flow->sequence = syn->sequence;
	flow->holdout = syn->holdout;
	flow->because = syn->because;
	flow->slot_ns = syn->slot_ns;
	bpf_map_update_elem(&flows, connection, flow, BPF_NOEXIST);
	syn->stage = ACCOUNTED;
	begun = bpf_map_lookup_elem(&flows, connection);
	if (!begun)
		count(UNACCOUNTED);
	return begun;
}

/* The place of a server among those that are looked at for code points; others may have it too. */
static __always_inline __u32 place_of(const struct address *server)
{
	__u32 all = server->word[0] ^ server->word[1] ^ server->word[2] ^ server->word[3];

	return (all ^ all >> 16) % MARKED_SERVERS;
}

static __always_inline void note_marking(const struct address *server)
{
	__u32 zero = 0;
	struct marked_servers *servers = bpf_map_lookup_elem(&marked_servers, &zero);

	if (servers)
		servers->marked[place_of(server)] = 1;
}

/* The server has answered a SYN, and the answer has come by here. */
static __always_inline void answered(const struct connection *connection, struct syn_record *syn,
				     const struct packet *packet, __u64 now)
{
	learn(connection, now);
	if (syn->stage == ASKED) {
		syn->answer = packet->sequence;
		syn->answered = packet->acknowledgement;
		syn->answer_dscp = packet->dscp;
		if (packet->dscp)
			note_marking(&connection->server);
		syn->stage = ANSWERED;
	}
	if (syn->verdict == PASS_ASYMMETRIC) {
		struct address route = network_of(&connection->server);

		bpf_map_delete_elem(&routes, &route);
	}
}

/* The client goes on with a connection that was passed, though no answer came by here: its server's
 * packets take another way, and a split would never see them. Not so where NAT of this host may have changed
 * the addresses: then the answer came by here under others. */
static __always_inline void doubt(const struct connection *connection, __u64 now)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct address prefix = network_of(&connection->server);
	struct route route = { .until_ns = now + ASYMMETRIC_FOR };
	struct route *known = bpf_map_lookup_elem(&routes, &prefix);

	if (!set || set->translates)
		return;
	if (!known || known->until_ns < now + ASYMMETRIC_FOR / 2)
		count(ASYMMETRIC);
	bpf_map_update_elem(&routes, &prefix, &route, BPF_ANY);
}

/* The SYN that a packet goes on with, if it is not in `flows` yet, nor was. That of a connection which
 * is `confirmed` is no former one's, however long ago it was. */
static __always_inline struct syn_record *pending(const struct connection *connection, bool confirmed,
					       __u64 now)
{
	struct syn_record *syn = bpf_map_lookup_elem(&syn_records, connection);

	if (!syn || syn->stage == ACCOUNTED)
		return NULL;
	if (now - syn->at_ns > MEMORY && !(confirmed && syn->verdict == SPLIT))
		return NULL;
	return syn;
}

/* The account that a packet from a client begins. */
static __always_inline struct flow *begun_by_client(const struct connection *connection,
						    struct packet *packet, bool confirmed,
						    __u64 now)
{
	struct syn_record *syn = pending(connection, confirmed, now);

	if (!syn || !(packet->flags & TCP_ACK) || packet->flags & (TCP_SYN | TCP_RST))
		return NULL;
	/* The client was answered in the server's name, maybe before the server has answered, and may
	 * have said all by then. */
	if (confirmed && syn->verdict == SPLIT)
		return begin(packet, connection, syn);
	if (syn->stage == ANSWERED) {
		/* Nobody but who has seen the server's answer can acknowledge it. */
		if (confirmed || packet->acknowledgement == syn->answer + 1)
			return begin(packet, connection, syn);
	} else if (syn->verdict != SPLIT && packet->sequence == syn->sequence + 1) {
		doubt(connection, now);
	}
	return NULL;
}

/* The account that a packet from a server begins. */
static __always_inline struct flow *begun_by_server(const struct connection *connection,
						    struct packet *packet, bool confirmed,
						    bool connecting, __u64 now)
{
	struct syn_record *syn = pending(connection, confirmed, now);

	if (!syn || !(packet->flags & TCP_ACK))
		return NULL;
	if (packet->flags & TCP_SYN) {
		answered(connection, syn, packet, now);
		/* The relay has connected to it as the client had agreed, who may be silent for long now. */
		if (connecting && syn->verdict == SPLIT)
			return begin(packet, connection, syn);
	} else if (syn->stage == ANSWERED && confirmed)
		return begin(packet, connection, syn);
	return NULL;
}

/* The client agrees, and may be silent for long now: the account begins if its server was asked first, and has agreed. So it
 * does with the client's first bytes, which may be all that it has to say: they may come with the end of the handshake, or before
 * it, where a network card spreads packets over processors. */
static __always_inline void agree(struct packet *packet)
{
	struct connection connection = connection_from_client(packet);
	struct syn_record *syn = pending(&connection, false, bpf_ktime_get_ns());

	if (!syn || syn->verdict != SPLIT || (packet->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK)
		return;
	syn->agreed = packet->acknowledgement;
	if (syn->stage == ANSWERED || (packet->payload && packet->sequence == syn->sequence + 1))
		begin(packet, &connection, syn);
}

/* Looks at a packet that opens no connection. `confirmed`: it is of a connection that a socket of this
 * host's has established; `connecting`: that one is about to; `by_server`: of the relay's leg to a server, which has sent it. */
static __always_inline void account(struct __sk_buff *skb, const struct settings *set, struct packet *packet,
				    bool confirmed, bool connecting, bool by_server)
{
	struct connection up = connection_from_client(packet);
	struct connection down = connection_from_server(packet);
	const struct connection *connection = &up;
	__u64 now = bpf_ktime_get_ns();
	struct flow *flow = NULL;

	/* Nearly all packets are of a connection that is known. */
	if (by_server) {
		flow = bpf_map_lookup_elem(&flows, &down);
		connection = &down;
	}
	/* The leg may be another relay's, whose marks are others: but nobody connects to a client. */
	if (!flow && !connecting) {
		flow = bpf_map_lookup_elem(&flows, &up);
		connection = &up;
	}
	if (!flow && !by_server) {
		flow = bpf_map_lookup_elem(&flows, &down);
		if (flow)
			connection = &down;
	}
	if (!flow && !connecting)
		flow = begun_by_client(&up, packet, confirmed, now);
	if (!flow) {
		flow = begun_by_server(&down, packet, confirmed, connecting, now);
		connection = &down;
		/* The client has begun it just now, on another processor. */
		if (!flow && connecting)
			flow = bpf_map_lookup_elem(&flows, &down);
	}
	if (!flow)
		return;
	if (connection == &up) {
		__u32 next = *(volatile __u32 *)&flow->up.next;

		if (flow->verdict == SPLIT && set->reordering_hold_us && confirmed && packet->payload && next &&
		    packet->sequence != next && has_stamp(skb))
			notice(skb, next);
		pass(flow, &flow->up, packet, RESET_BY_CLIENT, now);
	} else {
		pass(flow, &flow->down, packet, RESET_BY_SERVER, now);
	}
	if (flow->ending != OPEN)
		bpf_map_delete_elem(&flows, connection);
}
