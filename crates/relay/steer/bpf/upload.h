/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Holes in what clients send are kept from them where they fill by themselves: by acknowledgements of their legs that
 * do not go, or say less (`reordering.h` decides). What is known of a connection is kept with its socket, and goes with
 * it. */
#pragma once

#include "decide.h"
#include "leg.h"

/* Where packets go that nobody is to see: no link has this index. A sender whose packet is dropped takes it for a sign
 * of congestion (`tcp_enter_cwr`), one whose packet is sent elsewhere does not. */
#define NOWHERE 0x7fffffff

/* Of TCP, with options (RFC 9293, 3.1). */
#define LONGEST_HEADER 60

enum { OPTION_END, OPTION_NOTHING, OPTION_SACK = 5, OPTION_TIMESTAMPS = 8 };

/* Finds an option in a TCP header's options, from `offset` up to `end`, in bytes from the network header: where it
 * begins, or 0. Verified by itself. */
__noinline int find_option(struct __sk_buff *skb, __u32 offset, __u32 end, __u32 kind)
{
	for (int i = 0; i < OPTIONS; i++) {
		__u8 option[2];

		if (offset + sizeof(option) > end || !load(skb, offset, option, sizeof(option)))
			return 0;
		if (option[0] == kind)
			return offset;
		if (option[0] == OPTION_END || (option[0] != OPTION_NOTHING && option[1] < sizeof(option)))
			return 0;
		offset += option[0] == OPTION_NOTHING ? 1 : option[1];
	}
	return 0;
}

/* Whether the packet that comes in has a timestamp, which it has in `stamp` then. Verified by itself, and so without what
 * was read of it, which it finds: no other memory can be a key for all kernels. */
__noinline int has_stamp(struct __sk_buff *skb)
{
	struct packet *packet = last_read(IN);
	__u32 at, end;
	__be32 stamp;

	if (!packet)
		return false;
	end = packet->end - packet->payload;
	at = find_option(skb, packet->transport + sizeof(struct tcp), end, OPTION_TIMESTAMPS);
	if (!at || !load(skb, at + 2, &stamp, sizeof(stamp)))
		return false;
	packet->stamp = bpf_ntohl(stamp);
	return true;
}

/* A client's data has come out of order to its leg's socket, when all before it ended at `highest`. Verified by itself, as
 * above. */
__noinline int notice(struct __sk_buff *skb, __u32 highest)
{
	struct packet *packet = last_read(IN);
	struct lateness *lateness, *network;
	struct bpf_sock *socket, *full;
	struct upload *upload;
	__u64 now;

	if (!packet)
		return 0;
	packet->client = subscriber(packet);
	packet->network = network_of(&packet->client);
	__builtin_memset(&packet->unknown, 0, sizeof(packet->unknown));
	network = bpf_map_lookup_elem(&lateness_in, &packet->network);
	if (!network) {
		bpf_map_update_elem(&lateness_in, &packet->network, &packet->unknown, BPF_NOEXIST);
		network = bpf_map_lookup_elem(&lateness_in, &packet->network);
	}
	lateness = bpf_map_lookup_elem(&lateness_of, &packet->client);
	if (network && !lateness) {
		lateness_begin(&packet->unknown, network);
		bpf_map_update_elem(&lateness_of, &packet->client, &packet->unknown, BPF_NOEXIST);
		lateness = bpf_map_lookup_elem(&lateness_of, &packet->client);
	}
	if (!network || !lateness)
		return 0;
	socket = find_socket(skb, packet);
	if (!socket)
		return 0;
	full = bpf_sk_fullsock(socket);
	upload = full ? bpf_sk_storage_get(&uploads, full, 0, BPF_SK_STORAGE_GET_F_CREATE) : NULL;
	if (upload) {
		now = bpf_ktime_get_ns();
		bpf_spin_lock(&upload->lock);
		holes_came(&upload->holes, lateness, network, packet->sequence, packet->sequence + packet->payload,
			   highest, packet->stamp, now / NSEC_PER_USEC);
		bpf_spin_unlock(&upload->lock);
	}
	bpf_sk_release(socket);
	return 0;
}

/* Where in an acknowledgement its parts are, in bytes from the network header. */
struct layout {
	__u32 transport;
	__u32 end;
	__u32 sack;       /* of which the first two bytes are kind and length; 0 if there is none */
	__u32 link;       /* length of the link-layer header before */
	__u8 version;     /* of IP */
	struct address client; /* who it goes to */
};

/* Whether the packet acknowledges without data. */
static __always_inline bool only_tells(struct __sk_buff *skb, struct layout *layout, struct acknowledgement *ack)
{
	__u32 length, end;
	struct tcp tcp;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct ipv4 ip;

		if (!load(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
			return false;
		layout->transport = (ip.version_ihl & 15) * 4;
		length = bpf_ntohs(ip.length);
		layout->version = 4;
		layout->client = mapped(ip.destination);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6 ip;

		if (!load(skb, 0, &ip, sizeof(ip)) || ip.next != IPPROTO_TCP)
			return false;
		layout->transport = sizeof(ip);
		length = sizeof(ip) + bpf_ntohs(ip.length);
		layout->version = 6;
		layout->client = ip.destination;
	} else {
		return false;
	}
	if (!load(skb, layout->transport, &tcp, sizeof(tcp)))
		return false;
	end = layout->transport + (tcp.offset >> 4) * 4;
	if (tcp.flags != TCP_ACK || end != length || skb->len < length)
		return false;
	layout->end = end;
	layout->link = skb->len - length;
	layout->sack = find_option(skb, layout->transport + sizeof(tcp), end, OPTION_SACK);
	ack->number = bpf_ntohl(tcp.acknowledgement);
	ack->window = bpf_ntohs(tcp.window);
	for (int i = 0; layout->sack && i < SACK_BLOCKS; i++) {
		__u32 at = layout->sack + 2 + i * 8;
		__be32 block[2];

		if (at + sizeof(block) > end || !load(skb, at, block, sizeof(block)))
			break;
		ack->left[i] = bpf_ntohl(block[0]);
		ack->right[i] = bpf_ntohl(block[1]);
		ack->blocks = i + 1;
	}
	return true;
}

/* What an option of one block takes, in whole words: two bytes of nothing come before it. */
#define ONE_BLOCK 12

/* Makes room for an option of SACK with one block, behind all others. */
static __always_inline bool make_room(struct __sk_buff *skb, struct layout *layout)
{
	__u32 at_length = layout->link + (layout->version == 4 ? 2 : 4), transport = layout->link + layout->transport;
	__u32 segment = layout->end - layout->transport;
	__u8 nothing[2] = { OPTION_NOTHING, OPTION_NOTHING }, offset;
	__be16 before, after;

	if (segment + ONE_BLOCK > LONGEST_HEADER || bpf_skb_change_tail(skb, skb->len + ONE_BLOCK, 0))
		return false;
	if (bpf_skb_load_bytes(skb, at_length, &before, sizeof(before)) ||
	    bpf_skb_load_bytes(skb, transport + 12, &offset, sizeof(offset)))
		return false;
	after = bpf_htons(bpf_ntohs(before) + ONE_BLOCK);
	offset += ONE_BLOCK / 4 << 4;
	if (layout->version == 4 && bpf_l3_csum_replace(skb, layout->link + 10, before, after, sizeof(after)))
		return false;
	/* All that there is of it yet is the sum of what comes before the header, its length among it. */
	if (bpf_l4_csum_replace(skb, transport + 16, bpf_htons(segment), bpf_htons(segment + ONE_BLOCK),
				BPF_F_PSEUDO_HDR | sizeof(after)))
		return false;
	if (bpf_skb_store_bytes(skb, at_length, &after, sizeof(after), 0) ||
	    bpf_skb_store_bytes(skb, transport + 12, &offset, sizeof(offset), 0) ||
	    bpf_skb_store_bytes(skb, layout->link + layout->end, nothing, sizeof(nothing), 0))
		return false;
	layout->sack = layout->end + sizeof(nothing);
	return true;
}

/* Writes the blocks that are left into an acknowledgement. Its checksum is still to be made. */
static __always_inline bool rewrite(struct __sk_buff *skb, const struct layout *layout,
				    const struct acknowledgement *ack)
{
	__u8 head[2] = { ack->told ? OPTION_SACK : OPTION_NOTHING,
			 ack->told ? 2 + ack->told * 8 : OPTION_NOTHING };
	__u32 at = layout->link + layout->sack;
	/* What is left out comes behind. */
	__u32 told = at + sizeof(head), nothing = told + ack->told * 8;

	if (bpf_skb_store_bytes(skb, at, head, sizeof(head), 0))
		return false;
	for (int i = 0; i < SACK_BLOCKS; i++) {
		__be32 block[2] = { bpf_htonl(0x01010101), bpf_htonl(0x01010101) };
		__u32 place = nothing;

		if (i >= ack->blocks)
			break;
		if (ack->left[i] != ack->right[i]) {
			block[0] = bpf_htonl(ack->left[i]);
			block[1] = bpf_htonl(ack->right[i]);
			place = told;
			told += sizeof(block);
		} else {
			nothing += sizeof(block);
		}
		if (bpf_skb_store_bytes(skb, place, block, sizeof(block), 0))
			return false;
	}
	return true;
}

/* Whether a packet on its way out is not to go. Verified by itself. */
__noinline int keeps_back(struct __sk_buff *skb, __u32 longest_us)
{
	struct acknowledgement ack = {};
	struct layout layout = {};
	struct lateness *lateness;
	struct bpf_sock *socket;
	struct upload *upload;
	enum telling telling;
	__u32 hold, now;

	socket = skb->sk;
	socket = socket ? bpf_sk_fullsock(socket) : NULL;
	upload = socket ? bpf_sk_storage_get(&uploads, socket, 0, 0) : NULL;
	if (!upload || !only_tells(skb, &layout, &ack))
		return false;
	if (!ack.blocks && upload->holes.twice_left == upload->holes.twice_right)
		return false;
	layout.client = subscriber_at(layout.client, layout.version);
	lateness = bpf_map_lookup_elem(&lateness_of, &layout.client);
	if (!lateness)
		return false;
	hold = min32(lateness->hold_us, longest_us);
	now = bpf_ktime_get_ns() / NSEC_PER_USEC;
	bpf_spin_lock(&upload->lock);
	telling = holes_tell(&upload->holes, hold, lateness->judged, &ack, now);
	bpf_spin_unlock(&upload->lock);
	if (telling == TELL_NOT) {
		count(KEPT_BACK);
		return true;
	}
	if (telling == TELL || (!layout.sack && !make_room(skb, &layout)))
		return false;
	if (rewrite(skb, &layout, &ack) && telling == TELL_LESS)
		count(TOLD_LESS);
	return false;
}
