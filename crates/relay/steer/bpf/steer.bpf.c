// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Gives the packets of split connections to the relay's sockets, and new connections to its
 * listeners, at the ingress of every link. Whatever is in doubt goes on as if this were not here. */
#include "account.h"
#include "cookie.h"
#include "consult.h"
#include "leg.h"
#include "loopback.h"
#include "upload.h"

/* Has the packet delivered on this host, whose stack finds the socket of a connection by itself, and with
 * it the route: quicker than a socket assigned here, which has the route looked up again. */
static __always_inline void deliver(struct __sk_buff *skb, const struct settings *set, enum leg leg)
{
	skb->mark = mark_of(set, leg);
}

/* Hands the packet to a listener, which the stack would not find; or which it asks for by itself (see `reopen`): filters of
 * reverse paths let in what has a socket only by the link that the socket has had packets from. */
static __always_inline void give(struct __sk_buff *skb, const struct settings *set,
				 struct bpf_sock *listener)
{
	if (!set->by_loopback && bpf_sk_assign(skb, listener, 0))
		count(NOT_STEERED);
	else
		deliver(skb, set, CLIENT_LEG);
}

/* Has a packet forwarded that this host has a socket in TIME-WAIT for. The stack looks for a socket before it
 * looks for a route (`tcp_early_demux`), and forwards nothing that has one, but does neither for what has a
 * route already. A tunnel's is dropped again when the packet is routed. */
static __always_inline void forward(struct __sk_buff *skb)
{
	struct bpf_tunnel_key none = {};

	/* The oldest layout, which every kernel takes: nothing else could be wrong. */
	bpf_skb_set_tunnel_key(skb, &none, offsetof(struct bpf_tunnel_key, remote_ipv6[1]), 0);
}

/* The verdict that a retransmitted SYN must have, so that it is the same as the first one's: what
 * was passed must not be split halfway. VERDICTS if this is a new SYN. */
static __always_inline enum verdict verdict_again(struct syn_record *syn,
						  const struct packet *packet, __u64 now)
{
	if (!syn || syn->sequence != packet->sequence || now - syn->at_ns > MEMORY)
		return VERDICTS;
	if (syn->verdict != SPLIT)
		return PASS_AGAIN;
	if (now - syn->at_ns < DUPLICATE)
		return VERDICTS;
	/* It was given to a listener, which knows nothing of it: something between here and there
	 * eats packets. */
	syn->verdict = PASS_UNREACHED;
	return PASS_UNREACHED;
}

/* A new connection. `former`: another one with the same addresses has left something in TIME-WAIT. Gives what becomes of
 * the packet. */
static __always_inline int open(struct __sk_buff *skb, const struct settings *set, struct packet *packet,
				bool former)
{
	struct connection connection = connection_from_client(packet);
	__u64 now = bpf_ktime_get_ns();
	__u64 hashed = hash(&connection, set->seed);
	struct syn_record *syn = &packet->syn;
	struct bpf_sock *listener = NULL;
	struct syn_record *known;
	struct address client;
	enum verdict verdict;
	__u32 index = 0, generation;
	__u64 name;
	struct flow *before;
	bool confirm, consults;

	__builtin_memset(syn, 0, sizeof(*syn));
	syn->first_ns = syn->at_ns = now;
	syn->sequence = packet->sequence;
	syn->interface = skb->ifindex;
	known = bpf_map_lookup_elem(&syn_records, &connection);
	if (known && known->sequence == packet->sequence && now - known->at_ns < MEMORY)
		syn->first_ns = known->first_ns;
	if (is_held(known, packet, now)) {
		verdict = held_again(skb, set, packet, known, now);
		if (verdict == HELD)
			return DROP;
		count(verdict);
		if (verdict != SPLIT)
			return GO_ON;
		index = known->listener;
		listener = bpf_map_lookup_elem(&listeners, &index);
		goto give;
	}
	verdict = verdict_again(known, packet, now);
	if (verdict != VERDICTS) {
		count(verdict);
		return GO_ON;
	}
	verdict = policy_of(skb, set, packet, hashed, now, &generation, &confirm, &consults);
	/* Neither is the relay's business, nor worth remembering: the link of a VLAN may see it otherwise
	 * than the one below it. */
	if (verdict == PASS_CLIENT || verdict == PASS_LOCAL) {
		count(verdict);
		return GO_ON;
	}
	client = subscriber(packet);
	if (verdict == SPLIT && bpf_map_lookup_elem(&full_clients, &client))
		verdict = PASS_CLIENT_FULL;
	if (verdict == SPLIT && !within_rate(set, client, now))
		verdict = PASS_RATE;
	if (verdict == SPLIT) {
		listener = choose(set, generation, packet->version == 6, hashed >> 32, now, &index, &verdict);
		if (listener)
			verdict = confirm ? HELD : SPLIT;
		if (listener && consults)
			verdict = by_rules(skb, set, &connection, verdict, now);
	}
	/* Its end was not seen. */
	name = name_of(packet);
	before = set->bare ? NULL : bpf_map_lookup_elem(&flows, &name);
	if (before) {
		close(before, REPLACED, now);
		bpf_map_delete_elem(&flows, &name);
	}
	/* Before the packet reaches the stack, which asks for it (see `reopen`). */
	syn->verdict = verdict;
	syn->listener = index;
	bpf_map_update_elem(&syn_records, &connection, syn, BPF_ANY);
	count(verdict);
	if (verdict != SPLIT && listener) {
		bpf_sk_release(listener);
		listener = NULL;
		if (verdict == PASS_TRANSLATED)
			return GO_ON;
		if (verdict == HELD && hold(skb, packet, &connection, index / 2, false, now))
			return DROP;
		if (verdict == CONSULTED &&
		    consult(skb, set, packet, &connection, index / 2, confirm, now))
			return GO_ON;
		/* User space does not keep up, or the SYN is too long. */
		syn->verdict = PASS_FULL;
		bpf_map_update_elem(&syn_records, &connection, syn, BPF_ANY);
		count(PASS_FULL);
	}
give:
	if (!listener)
		return GO_ON;
	/* What is in TIME-WAIT must judge whether this is a new connection or an old segment
	 * (RFC 9293, 3.10.7.4), and gives way to the listener if it is. */
	if (former) {
		count(REOPENED);
		deliver(skb, set, CLIENT_LEG);
	} else {
		give(skb, set, listener);
	}
	bpf_sk_release(listener);
	return GO_ON;
}

static __always_inline bool is_opened_and_passed(const struct connection *connection)
{
	struct syn_record *syn = bpf_map_lookup_elem(&syn_records, connection);

	return syn && syn->verdict != SPLIT &&
	       bpf_ktime_get_ns() - syn->at_ns < MEMORY;
}

/* Whether a connection that this host has passed on uses the addresses of a split one of which it has
 * a leg, the client's or the server's, in TIME-WAIT. */
static __always_inline bool passed_since(const struct packet *packet)
{
	struct connection up = connection_from_client(packet);
	struct connection down = connection_from_server(packet);
	struct flow *flow = flow_of(packet);

	if (flow)
		return flow->verdict != SPLIT;
	return is_opened_and_passed(&up) || is_opened_and_passed(&down);
}

/* Whether the packet goes on with a connection that is not this half-open one: a client acknowledges what another server
 * has sent, whose connection was there before the relay, and whose addresses somebody has sent a SYN with
 * (RFC 5961, 4). */
static __always_inline bool is_anothers(struct bpf_sock *socket, const struct packet *packet)
{
	__u32 zero = 0, at = bpf_core_field_offset(struct tcp_request_sock, snt_isn);
	struct request *request;

	if (socket->state != BPF_TCP_NEW_SYN_RECV || !(packet->flags & TCP_ACK))
		return false;
	/* As memory: `bpf_skc_to_tcp_request_sock` knows none whose listener is in a map of sockets, and verifiers let
	 * nobody reckon with the pointer. */
	request = bpf_map_lookup_elem(&requests, &zero);
	if (!request || at > sizeof(*request) - sizeof(__u32) ||
	    bpf_probe_read_kernel(request, sizeof(*request), socket))
		return false;
	return packet->acknowledgement != *(__u32 *)(request->bytes + at) + 1;
}

/* Whether the packet, from a server that the relay has sent a SYN to while it holds the client's, is of a connection that
 * they have without the relay: the SYN that is held is somebody else's (RFC 5961, 4), or the client's after it has
 * restarted. Then the client is to answer, as it would without the relay, and not the socket, by a reset. */
static __always_inline bool is_between_ends(const struct bpf_sock *socket, const struct packet *packet)
{
	struct connection connection = connection_from_server(packet);
	struct syn_record *syn;

	if (socket->state != BPF_TCP_SYN_SENT || packet->flags & (TCP_SYN | TCP_RST))
		return false;
	syn = bpf_map_lookup_elem(&syn_records, &connection);
	return syn && syn->verdict == HELD;
}

/* Whether both sides have agreed to the connection. */
static __always_inline bool is_established(const struct bpf_sock *socket)
{
	switch (socket->state) {
	case BPF_TCP_ESTABLISHED:
	case BPF_TCP_FIN_WAIT1:
	case BPF_TCP_FIN_WAIT2:
	case BPF_TCP_CLOSE_WAIT:
	case BPF_TCP_LAST_ACK:
	case BPF_TCP_CLOSING:
		return true;
	default:
		return false;
	}
}

/* Who has sent what is for a socket. */
static __always_inline enum sender sender_to(const struct bpf_sock *socket, enum leg leg)
{
	if (!socket)
		return ANYBODY;
	if (socket->state == BPF_TCP_SYN_SENT)
		return ANSWERING_SERVER;
	return leg == CLIENT_LEG ? CLIENT : SERVER;
}

/* Has a fragment of a split connection's delivered on this host, which puts it together. Only the first one says whose
 * it is. Should another come before it, the sender's retransmission makes up for it. */
static __always_inline void steer_fragment(struct __sk_buff *skb, const struct settings *set,
					   struct packet *packet)
{
	struct datagram datagram = {
		.source = packet->source,
		.destination = packet->destination,
		.id = packet->fragment_of,
	};
	struct bpf_sock *socket = NULL;
	__u32 *known, leg;

	if (!packet->is_first) {
		known = bpf_map_lookup_elem(&datagrams, &datagram);
		if (known) {
			deliver(skb, set, *known);
			count(STEERED);
		} else {
			count(FRAGMENT);
		}
		return;
	}
	/* A SYN has no socket yet, and is passed. */
	if (!(packet->flags & TCP_SYN))
		socket = find_socket(skb, packet);
	if (socket && socket->state != BPF_TCP_LISTEN && socket->state != BPF_TCP_TIME_WAIT &&
	    !is_anothers(socket, packet)) {
		leg = leg_of(socket, set);
		bpf_map_update_elem(&datagrams, &datagram, &leg, BPF_ANY);
		deliver(skb, set, leg);
		count(STEERED);
	} else {
		count(FRAGMENT);
	}
	if (socket)
		bpf_sk_release(socket);
}

/* What becomes of a packet; what is to be delivered has a mark then. */
static __always_inline int judge(struct __sk_buff *skb, const struct settings *set,
				 struct packet *packet)
{
	struct bpf_sock *socket, *listener;
	enum leg leg = CLIENT_LEG;
	int action = GO_ON;
	bool former, anothers, agreeing;
	__u32 known = 0;

	if (packet->kind == TCP_FRAGMENT)
		steer_fragment(skb, set, packet);
	if (packet->kind != TCP && packet->kind != ICMP)
		return GO_ON;

	/* What has a SYN begins an account, if anything. */
	if (packet->kind == TCP && !(packet->flags & TCP_SYN) && !set->bare)
		known = take_known();
	if (known & OUT_OF_ORDER && set->reordering_hold_us && has_stamp(skb))
		notice(skb, packet->highest);
	if (known & SETTLED) {
		deliver(skb, set, known & FROM_CLIENT ? CLIENT_LEG : SERVER_LEG);
		count(STEERED);
		return GO_ON;
	}
	socket = find_socket(skb, packet);
	if (socket && socket->state == BPF_TCP_LISTEN) {
		bpf_sk_release(socket);
		socket = NULL;
	}
	if (packet->kind == ICMP) {
		/* The stack finds the socket by what the error quotes; it must only get there. */
		if (socket) {
			deliver(skb, set, leg_of(socket, set));
			count(STEERED_ICMP);
			bpf_sk_release(socket);
		}
		return GO_ON;
	}
	former = socket && socket->state == BPF_TCP_TIME_WAIT;
	if (opens(packet) && (!socket || former)) {
		action = open(skb, set, packet, former);
		if (former && action == GO_ON && !is_delivered(skb, set))
			forward(skb);
	} else if (!socket && (listener = established_by_cookie(skb, set, packet))) {
		count(COOKIE);
		give(skb, set, listener);
		bpf_sk_release(listener);
	} else {
		anothers = socket && (is_anothers(socket, packet) || is_between_ends(socket, packet));
		if (socket)
			leg = leg_of(socket, set);
		agreeing = socket && socket->state == BPF_TCP_NEW_SYN_RECV;
		if (agreeing && !anothers && !set->bare)
			agree(packet);
		if (!known && !set->bare && (!agreeing || !only_acknowledges(packet)))
			account(packet, sender_to(socket, leg), socket && is_established(socket));
		if ((former && passed_since(packet)) || anothers) {
			forward(skb);
		} else if (socket) {
			deliver(skb, set, leg);
			count(STEERED);
		}
	}
	if (socket)
		bpf_sk_release(socket);
	return action;
}

SEC("tcx/ingress")
int steer(struct __sk_buff *skb)
{
	struct packet *packet;
	struct settings *set;
	__u32 zero = 0;
	bool comes_back;
	int action;

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return GO_ON;
	comes_back = skb->ifindex == set->injectors[0] || skb->ifindex == set->injectors[1];
	/* Seen already, on the link that a VLAN's link stands on; or a frame for another host. */
	if (!comes_back && (is_delivered(skb, set) || skb->pkt_type != PACKET_HOST))
		return GO_ON;
	packet = read(skb, IN);
	if (!packet)
		return GO_ON;
	if (comes_back)
		return opens(packet) ? bring_back(skb, packet) :
				       send_again(skb, tells_again(skb, set->reordering_hold_us));
	action = judge(skb, set, packet);
	if (action == GO_ON && set->by_loopback && is_delivered(skb, set))
		return by_loopback(skb);
	return action;
}

/* Whether it is ICMP, or ICMPv6 right behind the IP header. */
static __always_inline bool is_icmp(struct __sk_buff *skb)
{
	bool v4 = skb->protocol == bpf_htons(ETH_P_IP);
	__u8 protocol;

	if (!v4 && skb->protocol != bpf_htons(ETH_P_IPV6))
		return false;
	if (bpf_skb_load_bytes_relative(skb, v4 ? 9 : 6, &protocol, 1, BPF_HDR_START_NET))
		return false;
	return protocol == (v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

/* Gives the relay an error that this host itself has made about a segment of the relay's, such as that its next hop does
 * not answer: it is on its way to the end in whose name that was sent. */
static __always_inline int give_back(struct __sk_buff *skb, const struct settings *set)
{
	struct packet *packet = read(skb, OUT);
	struct bpf_sock *socket;
	int action = GO_ON;

	if (!packet || packet->kind != ICMP)
		return GO_ON;
	socket = find_socket(skb, packet);
	if (!socket)
		return GO_ON;
	if (socket->state != BPF_TCP_LISTEN) {
		deliver(skb, set, leg_of(socket, set));
		count(STEERED_ICMP);
		action = by_loopback(skb);
	}
	bpf_sk_release(socket);
	return action;
}

/* At the egress of every link. */
SEC("tcx/egress")
int leave(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (!set)
		return GO_ON;
	if (is_icmp(skb))
		return give_back(skb, set);
	if (skb->sk && set->reordering_hold_us && keeps_back(skb, set->reordering_hold_us))
		return bpf_redirect(NOWHERE, 0);
	return come_through(skb, set);
}

/* Asked when the stack looks for a listener, as there is no other socket. It finds the relay's by itself only for what
 * `steer` has assigned to it; what a TIME-WAIT socket has let go is looked up by its destination. */
SEC("sk_lookup")
int reopen(struct bpf_sk_lookup *lookup)
{
	volatile struct bpf_sk_lookup *from = lookup;
	struct connection connection = {};
	struct syn_record *syn;
	struct address local6, remote6;
	struct bpf_sock *listener;
	__u32 local4, remote4, index;
	bool v4;

	if (lookup->protocol != IPPROTO_TCP)
		return SK_PASS;
	/* All of them are read whatever the family, and volatile so that they are: a choice between
	 * two would be compiled to a computed offset, which the verifier refuses. */
	local4 = from->local_ip4;
	remote4 = from->remote_ip4;
	for (int i = 0; i < 4; i++) {
		local6.word[i] = from->local_ip6[i];
		remote6.word[i] = from->remote_ip6[i];
	}
	v4 = from->family == AF_INET;
	connection.client = v4 ? mapped(remote4) : remote6;
	connection.server = v4 ? mapped(local4) : local6;
	connection.client_port = lookup->remote_port;
	connection.server_port = bpf_htons(lookup->local_port);
	syn = bpf_map_lookup_elem(&syn_records, &connection);
	if (!syn || syn->verdict != SPLIT || bpf_ktime_get_ns() - syn->at_ns > SECOND) {
		unsettle(&connection);
		return SK_PASS;
	}
	index = syn->listener;
	listener = bpf_map_lookup_elem(&listeners, &index);
	/* Its relay has died just now. Nobody else here may answer in the server's name. */
	if (!listener)
		return SK_DROP;
	bpf_sk_assign(lookup, listener, 0);
	bpf_sk_release(listener);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
