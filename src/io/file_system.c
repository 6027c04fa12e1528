/* File systems by the magic number that statfs gives. */
#include "base/fail.h"
#include "io/file.h"

#include <errno.h>
#include <sys/vfs.h>

static const struct {
    uint32_t magic;
    plim__file_system_t system;
} known[] = {
    {0x0000ef53, {"ext4", false, false}},     {0x58465342, {"xfs", false, false}},
    {0x9123683e, {"btrfs", false, false}},    {0x2fc12fc1, {"zfs", false, false}},
    {0xca451a4e, {"bcachefs", false, false}}, {0xf2f52010, {"f2fs", false, false}},
    {0x794c7630, {"overlay", false, false}},  {0x65735546, {"fuse", false, false}},
    {0x73717368, {"squashfs", false, false}}, {0x00009660, {"iso9660", false, false}},
    {0x00004d44, {"fat", false, false}},      {0x2011bab0, {"exfat", false, false}},
    {0x01021994, {"tmpfs", false, true}},     {0x858458f6, {"ramfs", false, true}},
    {0x958458f6, {"hugetlbfs", false, true}}, {0x0bd00bd0, {"lustre", true, false}},
    {0x47504653, {"gpfs", true, false}},      {0x00006969, {"nfs", true, false}},
    {0x19830326, {"beegfs", true, false}},    {0x00c36400, {"cephfs", true, false}},
    {0xff534d42, {"cifs", true, false}},      {0xfe534d42, {"smb", true, false}},
    {0x0000517b, {"smb", true, false}},       {0x01021997, {"9p", true, false}},
    {0xaad7aaea, {"panfs", true, false}},     {0x5346414f, {"afs", true, false}},
    {0x6b414653, {"afs", true, false}},       {0x7461636f, {"ocfs2", true, false}},
    {0x01161970, {"gfs2", true, false}},
};

plim__file_system_t plim__file_system_of(uint32_t magic)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].magic == magic)
            return known[i].system;
    }
    return (plim__file_system_t){"unknown", false, false};
}

plim_status_t plim__file_system(const char *path, plim__file_system_t *system_out)
{
    struct statfs about;
    int result;
    do {
        result = statfs(path, &about);
    } while (result != 0 && errno == EINTR);
    if (result != 0)
        return plim__fail_errno(errno, "%s: cannot ask for its file system", path);
    *system_out = plim__file_system_of((uint32_t)about.f_type);
    return PLIM_OK;
}
