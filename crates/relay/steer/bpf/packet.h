/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What of a packet matters to steering. All is read relative to the network header, so that links
 * with and without a link-layer header are alike; the kernel has taken off the outer VLAN tag. */
#pragma once

#include "kernel.h"
#include "intf.h"
#include "reordering.h"

enum { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

enum kind {
	OTHER,          /* nothing for us */
	TCP,
	TCP_FRAGMENT,   /* without a port, or with one but not the whole */
	ICMP,           /* an error, about a TCP segment that it quotes */
};

/* Where in an acknowledgement its parts are, in bytes from the network header. */
struct layout {
	__u32 transport;
	__u32 end;
	__u32 sack;       /* of which the first two bytes are kind and length; 0 if there is none */
	__u32 link;       /* length of the link-layer header before */
	__u8 version;     /* of IP */
	__u32 interface;  /* index of the one that it goes by; only of one that goes again */
	struct address client; /* the subscriber that it goes to */
};

struct packet {
	enum kind kind;
	__u8 version;   /* of IP */
	__u8 dscp;
	__u8 flags;     /* of TCP */
	__u32 sequence;
	__u32 acknowledgement;
	__u32 payload;  /* bytes; of several segments if the kernel has merged them */
	__u32 start;    /* where the IP packet begins, from the network header */
	__u32 transport; /* where the TCP header begins */
	__u32 end;      /* where the IP packet ends; 0 if its length field cannot say */
	__u32 fragment_of; /* of a fragment: the identification of its datagram, as it is in the header */
	bool is_first;  /* fragment, which has the TCP header */
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	/* Nothing that was read, but here as the stack is small: what `open` remembers; what `begin` begins; what is hashed
	 * for a holdout; what `send_again` sends; and keys, of `find_socket`, of `notice` and of `chance_of`. */
	struct syn_record syn;
	struct flow flow;
	struct connection unit;
	struct acknowledgement ack;
	struct layout layout;
	struct place place;
	struct prefix prefix;
	struct bpf_sock_tuple tuple;
	struct address client;
	struct address network;
	struct lateness unknown; /* what a client or network of which nothing is known begins with; a constant would be a
				  * map that no other relay could take over */
	__u32 stamp;    /* TSval (RFC 7323); of `has_stamp` */
	__u32 highest;  /* where what came before ended; of `take_known` */
	__u8 blank[192]; /* nothing is ever written here: what a reminder begins with */
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 length;
	__u8 next;
	__u8 hop_limit;
	struct address source;
	struct address destination;
};

/* IPv6's fragment header. */
struct fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__be32 id;
};

/* Without options. */
struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 offset;
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

static __always_inline bool load(struct __sk_buff *skb, __u32 offset, void *to, __u32 size)
{
	return bpf_skb_load_bytes_relative(skb, offset, to, size, BPF_HDR_START_NET) == 0;
}

static __always_inline struct address mapped(__be32 v4)
{
	return (struct address){ { 0, 0, bpf_htonl(0xffff), v4 } };
}

static __always_inline bool parse_fragment(struct __sk_buff *skb, __u32 offset, struct packet *packet)
{
	struct fragment fragment;

	if (!load(skb, offset, &fragment, sizeof(fragment)))
		return false;
	packet->kind = TCP_FRAGMENT;
	packet->fragment_of = fragment.id;
	packet->is_first = !(fragment.offset & bpf_htons(0xfff8));
	return true;
}

/* Parses the IP header at `offset`, and gives the offset of what it carries, whose protocol is
 * `*protocol`; 0 if that is of no interest. */
static __always_inline __u32 parse_ip(struct __sk_buff *skb, __u32 offset, struct packet *packet,
				      __u8 *protocol)
{
	__u8 version;

	if (!load(skb, offset, &version, 1))
		return 0;
	packet->version = version >> 4;
	if (packet->version == 4) {
		struct ipv4 ip;

		if (!load(skb, offset, &ip, sizeof(ip)) || (ip.version_ihl & 15) < 5)
			return 0;
		packet->dscp = ip.tos >> 2;
		packet->source = mapped(ip.source);
		packet->destination = mapped(ip.destination);
		packet->end = ip.length ? offset + bpf_ntohs(ip.length) : 0;
		*protocol = ip.protocol;
		/* More to come, or not the first. */
		if (ip.fragment & bpf_htons(0x3fff)) {
			packet->kind = TCP_FRAGMENT;
			packet->fragment_of = ip.id;
			packet->is_first = !(ip.fragment & bpf_htons(0x1fff));
		}
		return offset + (ip.version_ihl & 15) * 4;
	}
	if (packet->version == 6) {
		struct ipv6 ip;
		__u8 next;

		if (!load(skb, offset, &ip, sizeof(ip)))
			return 0;
		packet->dscp = bpf_ntohl(ip.version_class_flow) >> 22 & 63;
		packet->source = ip.source;
		packet->destination = ip.destination;
		next = ip.next;
		offset += sizeof(ip);
		packet->end = ip.length ? offset + bpf_ntohs(ip.length) : 0;
		/* Hop-by-hop and destination options, a routing and a fragment header: each once at
		 * most, but for the destination options (RFC 8200, 4.1). */
		for (int i = 0; i < 5; i++) {
			__u8 extension[2];

			if (next != 0 && next != 43 && next != 44 && next != 60)
				break;
			if (!load(skb, offset, extension, 2))
				return 0;
			if (next == 44 && !parse_fragment(skb, offset, packet))
				return 0;
			offset += next == 44 ? 8 : (extension[1] + 1) * 8;
			next = extension[0];
		}
		*protocol = next;
		return offset;
	}
	return 0;
}

/* An error whose quoted segment `packet` is to describe, as if it came back from where it went:
 * the same way as the packets of the connection that this host receives. */
static __always_inline void parse_icmp(struct __sk_buff *skb, __u32 offset, struct packet *packet)
{
	struct packet quoted = {};
	__u8 type, protocol = 0;
	__be16 ports[2];

	if (!load(skb, offset, &type, 1))
		return;
	/* Destination unreachable, time exceeded, parameter problem; for IPv6 packet too big also. */
	if (packet->version == 4 ? type != 3 && type != 11 && type != 12 : type < 1 || type > 4)
		return;
	offset = parse_ip(skb, offset + 8, &quoted, &protocol);
	if (!offset || protocol != IPPROTO_TCP || quoted.kind == TCP_FRAGMENT ||
	    quoted.version != packet->version || !load(skb, offset, ports, sizeof(ports)))
		return;
	packet->kind = ICMP;
	packet->source = quoted.destination;
	packet->destination = quoted.source;
	packet->source_port = ports[1];
	packet->destination_port = ports[0];
}

/* The first segment of a connection. */
static __always_inline bool opens(const struct packet *packet)
{
	return (packet->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}

/* A segment without payload that says nothing but how far the other side's have come. */
static __always_inline bool only_acknowledges(const struct packet *packet)
{
	return (packet->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_ACK && !packet->payload;
}

/* Whether the packet holds all that its length says, the TCP header that ends at `offset` included. */
static __always_inline bool is_whole(struct __sk_buff *skb, const struct packet *packet, __u32 offset)
{
	__u8 last;

	if (packet->end < offset)
		return false;
	if (load(skb, packet->end - 1, &last, 1))
		return true;
	/* Only what is in one piece can be loaded, and the data on a SYN (RFC 7413) need not be. */
	return !bpf_skb_pull_data(skb, skb->len) && load(skb, packet->end - 1, &last, 1);
}

/* Reads a packet. */
static __always_inline void parse(struct __sk_buff *skb, struct packet *packet)
{
	__u16 ethertype = bpf_ntohs(skb->protocol);
	__u32 offset = 0;
	__u8 protocol = 0;
	struct tcp tcp;

	__builtin_memset(packet, 0, offsetof(struct packet, syn));
	/* Tags below the one that the kernel has taken off. */
	for (int i = 0; i < 2; i++) {
		__be16 tag[2];

		if (ethertype != ETH_P_8021Q && ethertype != ETH_P_8021AD)
			break;
		if (!load(skb, offset, tag, sizeof(tag)))
			return;
		ethertype = bpf_ntohs(tag[1]);
		offset += sizeof(tag);
	}
	if (ethertype != ETH_P_IP && ethertype != ETH_P_IPV6)
		return;
	packet->start = offset;
	offset = parse_ip(skb, offset, packet, &protocol);
	if (!offset || packet->version != (ethertype == ETH_P_IP ? 4 : 6)) {
		packet->kind = OTHER;
		return;
	}
	if (protocol == (packet->version == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6)) {
		if (packet->kind != TCP_FRAGMENT)
			parse_icmp(skb, offset, packet);
		else
			packet->kind = OTHER;
		return;
	}
	if (protocol != IPPROTO_TCP) {
		packet->kind = OTHER;
		return;
	}
	if (packet->kind == TCP_FRAGMENT && !packet->is_first)
		return;
	if (!load(skb, offset, &tcp, sizeof(tcp)) || tcp.offset >> 4 < 5) {
		packet->is_first = false;
		return;
	}
	packet->source_port = tcp.source;
	packet->destination_port = tcp.destination;
	packet->sequence = bpf_ntohl(tcp.sequence);
	packet->acknowledgement = bpf_ntohl(tcp.acknowledgement);
	packet->flags = tcp.flags;
	packet->transport = offset;
	if (packet->kind == TCP_FRAGMENT)
		return;
	packet->kind = TCP;
	offset += (tcp.offset >> 4) * 4;
	if (!packet->end)
		packet->payload = skb->gso_segs * skb->gso_size;
	else if (packet->end > offset)
		packet->payload = packet->end - offset;
	/* What the stack would drop must not be remembered. */
	if (opens(packet) && !is_whole(skb, packet, offset))
		packet->kind = OTHER;
}

/* Options looked at in search of one; a header holds no more than 40 of a byte each, which nobody sends. */
#define OPTIONS 16

/* Whether a SYN is signed (TCP-MD5, RFC 2385; TCP-AO, RFC 5925). */
static __always_inline bool is_signed(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 offset = packet->transport + sizeof(struct tcp), end = packet->end - packet->payload;

	for (int i = 0; i < OPTIONS; i++) {
		__u8 option[2];

		if (offset + sizeof(option) > end || !load(skb, offset, option, sizeof(option)))
			return false;
		if (option[0] == 19 || option[0] == 29)
			return true;
		if (option[0] == 0 || (option[0] != 1 && option[1] < sizeof(option)))
			return false;
		offset += option[0] == 1 ? 1 : option[1];
	}
	return false;
}

/* This host's socket between these addresses and ports, of which the first are another's: one of a connection, or a listener. To
 * be released. */
static __always_inline struct bpf_sock *find_between(struct __sk_buff *skb, struct packet *packet,
						     const struct address *remote, __be16 remote_port,
						     const struct address *local, __be16 local_port)
{
	struct bpf_sock_tuple *tuple = &packet->tuple;

	if (packet->version == 4) {
		tuple->ipv4.saddr = remote->word[3];
		tuple->ipv4.daddr = local->word[3];
		tuple->ipv4.sport = remote_port;
		tuple->ipv4.dport = local_port;
		return bpf_skc_lookup_tcp(skb, tuple, sizeof(tuple->ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	__builtin_memcpy(tuple->ipv6.saddr, remote, sizeof(*remote));
	__builtin_memcpy(tuple->ipv6.daddr, local, sizeof(*local));
	tuple->ipv6.sport = remote_port;
	tuple->ipv6.dport = local_port;
	return bpf_skc_lookup_tcp(skb, tuple, sizeof(tuple->ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* The one that the packet is for, or that the error is about. */
static __always_inline struct bpf_sock *find_socket(struct __sk_buff *skb, struct packet *packet)
{
	return find_between(skb, packet, &packet->source, packet->source_port, &packet->destination,
			    packet->destination_port);
}

/* The one that has sent the packet. */
static __always_inline struct bpf_sock *find_sender(struct __sk_buff *skb, struct packet *packet)
{
	return find_between(skb, packet, &packet->destination, packet->destination_port, &packet->source,
			    packet->source_port);
}
