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

/* To read the clock takes as long as much of the rest: it is read once for a packet, and only if that brings something
 * new. 0 until then. */
static __always_inline void stamp(__u64 *first_ns, __u64 *last_ns, __u64 *now)
{
	if (!*now)
		*now = bpf_ktime_get_ns();
	*last_ns = *now;
	if (!*first_ns)
		*first_ns = *now;
}

/* Who a direction's bytes are for has acknowledged those before `number`: that is when it has them, whoever passed
 * them on. The numbers of a split connection's two legs are not the same: these are counted from the first. */
static __always_inline void acknowledge(struct course *course, __u32 number, __u64 *now)
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
		if ((__s32)((__u32)course->bytes - known) > 0)
			stamp(&course->first_acknowledged_ns, &course->last_acknowledged_ns, now);
		return;
	}
}

/* Whether a direction's FIN has passed and is acknowledged. */
static __always_inline bool is_over(const struct course *course)
{
	__u32 acknowledged = *(volatile __u32 *)&course->acknowledged;

	return *(volatile __u32 *)&course->finished && (__s32)(acknowledged - (__u32)course->bytes) > 0;
}

static __always_inline void pass_one_way(struct flow *flow, struct course *course, struct course *other,
					 const struct packet *packet, enum ending reset)
{
	__u32 end = packet->sequence + packet->payload;
	__u64 now = 0;
	__s32 ahead;

	if ((packet->flags & (TCP_ACK | TCP_RST)) == TCP_ACK)
		acknowledge(other, packet->acknowledgement, &now);
	if (packet->flags & TCP_SYN) {
		if (!course->next)
			course->next = packet->sequence + 1;
		return;
	}
	/* The SYN has passed on another processor just when the account was begun. */
	if (!course->next && packet->payload)
		course->next = packet->sequence;
	if (packet->payload && advance(course, end))
		stamp(&course->first_ns, &course->last_ns, &now);
	if (flow->ending != OPEN)
		return;
	/* A reset that is none of this connection's must not end it (RFC 5961, 3.2). */
	if (packet->flags & TCP_RST) {
		ahead = packet->sequence - course->next;
		if (ahead >= 0 && ahead < FURTHEST)
			close(flow, course->finished && other->finished ? FINISHED : reset, bpf_ktime_get_ns());
		return;
	}
	if (packet->flags & TCP_FIN)
		__sync_lock_test_and_set(&course->finished, 1);
	if (is_over(course) && is_over(other))
		close(flow, FINISHED, bpf_ktime_get_ns());
}

/* Takes the packet that comes in into its connection's account, which may end it. Both directions' packets may pass at the
 * same time, on two processors: one of them at least sees what the other has changed, as it changes its own before it looks.
 * Verified by itself. */
__noinline int pass(struct flow *flow, __u32 by_client)
{
	struct packet *packet = last_read(IN);

	if (!flow || !packet)
		return 0;
	if (by_client)
		pass_one_way(flow, &flow->up, &flow->down, packet, RESET_BY_CLIENT);
	else
		pass_one_way(flow, &flow->down, &flow->up, packet, RESET_BY_SERVER);
	return 0;
}

/* Whether nothing asks for the SYN any more once its connection is accounted for, but a worker for the answer's marking. It
 * goes then, and the next SYN finds its place still in the processor's cache. */
static __always_inline bool is_done(const struct syn_record *syn)
{
	return syn->verdict == SPLIT && syn->answered && !syn->answer_dscp;
}

/* Writes the account of what a SYN has become, for `enter`. The client's first data and the server's answer may have it
 * written at the same time, on two processors. */
static __always_inline struct flow *begin(struct packet *packet, const struct connection *connection,
					  const struct syn_record *syn)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct flow *flow = &packet->flow;

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
	flow->settled = syn->verdict == SPLIT && set ? set->epoch : 0;
	return flow;
}

/* Marks that the SYN's connection has an account. Whether it had none before: another processor's may have been entered,
 * and have ended, while this one was on its way. */
static __always_inline bool claim(const struct connection *connection, struct syn_record *syn)
{
	if (is_done(syn))
		return !bpf_map_delete_elem(&syn_records, connection);
	/* Its place may be another's by now. */
	syn = bpf_map_lookup_elem(&syn_records, connection);
	return syn && __sync_lock_test_and_set(&syn->stage, ACCOUNTED) != ACCOUNTED;
}

/* Enters an account that the packet has begun, unless there is one, as another processor has come first. It is entered
 * before it is claimed: who finds the SYN claimed finds the account, and no packet goes by it. */
static __always_inline bool enter(const struct packet *packet, const struct flow *flow, struct syn_record *syn)
{
	__u64 name = name_of(packet);
	long error = bpf_map_update_elem(&flows, &name, flow, BPF_NOEXIST);

	if (error) {
		if (error != -EEXIST)
			count(UNACCOUNTED);
		return false;
	}
	if (claim(&flow->connection, syn))
		return true;
	bpf_map_delete_elem(&flows, &name);
	return false;
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
	if (syn->learns)
		learn(connection, now);
	if (!syn->answered) {
		syn->answer = packet->sequence;
		syn->answered = packet->acknowledgement;
		syn->answer_dscp = packet->dscp;
		if (packet->dscp)
			note_marking(&connection->server);
		__sync_val_compare_and_swap(&syn->stage, ASKED, ANSWERED);
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

/* The SYN that a packet goes on with. That of a connection which is `confirmed` is no former one's, however long ago it was.
 * `now` may be of the coarse clock, which is some milliseconds behind and takes no time to read. */
static __always_inline struct syn_record *opened_by(const struct connection *connection, bool confirmed,
					       __u64 now)
{
	struct syn_record *syn = bpf_map_lookup_elem(&syn_records, connection);

	if (syn && now > syn->at_ns + MEMORY && !(confirmed && syn->verdict == SPLIT))
		return NULL;
	return syn;
}

/* Whether a packet from a client begins the account. */
static __always_inline bool begins_by_client(const struct connection *connection, const struct packet *packet,
					     const struct syn_record *syn, bool confirmed, __u64 now)
{
	if (!(packet->flags & TCP_ACK) || packet->flags & (TCP_SYN | TCP_RST))
		return false;
	/* The client was answered in the server's name, maybe before the server has answered, and may
	 * have said all by then. */
	if (confirmed && syn->verdict == SPLIT)
		return true;
	/* Nobody but who has seen the server's answer can acknowledge it. */
	if (syn->stage == ANSWERED)
		return confirmed || packet->acknowledgement == syn->answer + 1;
	if (syn->verdict != SPLIT && packet->sequence == syn->sequence + 1)
		doubt(connection, now);
	return false;
}

/* Whether a packet from a server does. `connecting`: it is for a socket that has asked the server. */
static __always_inline bool begins_by_server(const struct connection *connection, const struct packet *packet,
					     struct syn_record *syn, bool confirmed, bool connecting, __u64 now)
{
	if (!(packet->flags & TCP_ACK))
		return false;
	if (!(packet->flags & TCP_SYN))
		return syn->stage == ANSWERED && confirmed;
	answered(connection, syn, packet, now);
	/* The client has said something already. */
	if (syn->stage == ACCOUNTED && is_done(syn))
		bpf_map_delete_elem(&syn_records, connection);
	/* The relay has connected to it as the client had agreed, who may be silent for long now. */
	return connecting && syn->verdict == SPLIT;
}

/* The client agrees, and may be silent for long now: the account begins if its server was asked first, and has agreed. So it
 * does with the client's first bytes, which may be all that it has to say: they may come with the end of the handshake, or before
 * it, where a network card spreads packets over processors. */
static __always_inline void agree(struct packet *packet)
{
	struct connection connection = connection_from_client(packet);
	struct syn_record *syn = opened_by(&connection, false, bpf_ktime_get_coarse_ns());

	if (!syn || syn->stage == ACCOUNTED || syn->verdict != SPLIT)
		return;
	if ((packet->flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_ACK)
		return;
	syn->agreed = packet->acknowledgement;
	if (syn->stage == ANSWERED || (packet->payload && packet->sequence == syn->sequence + 1))
		enter(packet, begin(packet, &connection, syn), syn);
}

/* What `take_known` has found of a packet's connection. */
enum known {
	ACCOUNTED_FOR = 1, /* it has an account */
	FROM_CLIENT = 2,
	SETTLED = 4,       /* its leg's socket need not be looked for here, but by the stack only (see `unsettle`) */
	OUT_OF_ORDER = 8,  /* data of a client's; what came before ended at `packet.highest` */
};

/* Takes the packet that comes in into the account that there is of its connection, if any. Verified by itself. */
__noinline int take_known(void)
{
	struct packet *packet = last_read(IN);
	struct settings *set;
	struct flow *flow;
	__u32 zero = 0, next, found = ACCOUNTED_FOR;
	__u64 name;
	bool client;

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!packet || !set)
		return 0;
	name = name_of(packet);
	flow = bpf_map_lookup_elem(&flows, &name);
	if (!flow)
		return 0;
	client = is_from_client(packet, &flow->connection);
	if (client)
		found |= FROM_CLIENT;
	if (flow->settled && flow->settled == set->epoch && !(packet->flags & (TCP_SYN | TCP_RST)))
		found |= SETTLED;
	next = *(volatile __u32 *)&flow->up.next;
	if (client && flow->verdict == SPLIT && packet->payload && next && packet->sequence != next) {
		packet->highest = next;
		found |= OUT_OF_ORDER;
	}
	pass(flow, client);
	if (flow->ending != OPEN)
		bpf_map_delete_elem(&flows, &name);
	return found;
}

/* There is no socket for what comes of the connection between two ends. The stack drops what has
 * been delivered all the same. What follows is looked at anew, and goes on to the other end, which tells the sender that nobody
 * is there. Not only by the packet read last: packets are read in batches before the stack has them. */
static __always_inline void unsettle(const struct connection *ends)
{
	__u64 name = name_between(&ends->client, ends->client_port, &ends->server, ends->server_port);
	struct flow *flow = bpf_map_lookup_elem(&flows, &name);

	if (flow && flow->settled)
		flow->settled = 0;
}

/* What is known of who has sent a packet, by the socket that it is for. */
enum sender {
	ANYBODY,
	CLIENT,          /* of a connection with this relay */
	SERVER,          /* or another relay's client, whose marks are others */
	ANSWERING_SERVER, /* to the SYN of a socket of this host's */
};

/* Looks at a packet that opens no connection, and has no account. `confirmed`: it is of a connection that a socket of this
 * host's has established. */
static __always_inline void account(struct packet *packet, enum sender sender, bool confirmed)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct connection connection;
	struct syn_record *syn = NULL;
	struct flow *flow;
	bool client = sender != ANSWERING_SERVER, begins = false;

	/* Nobody connects to a client. */
	if (client) {
		connection = connection_from_client(packet);
		syn = opened_by(&connection, confirmed, now);
		begins = syn && begins_by_client(&connection, packet, syn, confirmed, now);
	}
	if (!syn && sender != CLIENT) {
		client = false;
		connection = connection_from_server(packet);
		syn = opened_by(&connection, confirmed, now);
		begins = syn && begins_by_server(&connection, packet, syn, confirmed, sender == ANSWERING_SERVER, now);
	}
	if (syn && syn->stage != ACCOUNTED) {
		if (!begins)
			return;
		flow = begin(packet, &connection, syn);
		/* What ends it must find it entered. */
		if (packet->flags & TCP_RST) {
			enter(packet, flow, syn);
		} else {
			pass(flow, client);
			if (enter(packet, flow, syn))
				return;
		}
	} else if (!syn && sender == ANYBODY) {
		return;
	}
	/* It was begun just now: on another processor, or as the client has agreed. */
	take_known();
}
