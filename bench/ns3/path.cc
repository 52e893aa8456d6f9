// The path of `./run bench sim` in ns-3: one bulk upload over UE, MEC and server, a queue of one
// bandwidth-delay product before the slow link, 50 ms. Prints one line of JSON.
//
// path --rate=100000000 --time=10

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>
#include <ns3/traffic-control-module.h>

#include <sys/resource.h>

#include <chrono>
#include <iostream>

using namespace ns3;

int main(int argc, char **argv)
{
    uint64_t rate = 100000000;
    double seconds = 10;
    std::string control = "ns3::TcpCubic";
    CommandLine arguments;
    arguments.AddValue("rate", "of the slow link, bit/s", rate);
    arguments.AddValue("time", "to simulate, seconds", seconds);
    arguments.AddValue("control", "TypeId of the sender's congestion control", control);
    arguments.Parse(argc, argv);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName(control)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 30));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 30));

    NodeContainer hosts(3);
    InternetStackHelper().Install(hosts);
    PointToPointHelper access, wide;
    access.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
    access.SetChannelAttribute("Delay", StringValue("0.5ms"));
    access.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                    QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, rate / 8 / 20)));
    // No rate of its own in Midspan: one that does not count.
    wide.SetDeviceAttribute("DataRate", DataRateValue(DataRate(1000000000000)));
    wide.SetChannelAttribute("Delay", StringValue("24.5ms"));
    NetDeviceContainer near = access.Install(hosts.Get(0), hosts.Get(1));
    NetDeviceContainer far = wide.Install(hosts.Get(1), hosts.Get(2));
    // The device's queue is the one queue there is.
    TrafficControlHelper none;
    Ipv4AddressHelper addresses("10.0.1.0", "255.255.255.0");
    addresses.Assign(near);
    addresses.SetBase("10.0.2.0", "255.255.255.0");
    Ipv4InterfaceContainer server = addresses.Assign(far);
    none.Uninstall(near);
    none.Uninstall(far);
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(server.GetAddress(1), 5001));
    source.Install(hosts.Get(0)).Start(Seconds(0));
    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 5001));
    Ptr<PacketSink> received = DynamicCast<PacketSink>(sink.Install(hosts.Get(2)).Get(0));

    Simulator::Stop(Seconds(seconds));
    auto begin = std::chrono::steady_clock::now();
    Simulator::Run();
    std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    std::cout << "{\"version\":\"" NS3_VERSION "\",\"seconds\":" << elapsed.count() << ",\"events\":" << Simulator::GetEventCount()
              << ",\"goodput_mbps\":" << received->GetTotalRx() * 8 / seconds / 1e6
              << ",\"peak_kib\":" << usage.ru_maxrss << "}" << std::endl;
    Simulator::Destroy();
}
